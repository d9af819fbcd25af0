// CartPole of which only positions are seen: what moves how fast is to be told from several observations, so that it needs
// a policy with a memory. State, dynamics, actions, reward, start and ends are CartPole-v1's, from its own header.
//
// Observation:
//   0  cart position  m
//   1  pole angle     rad
// Version: 0.
#pragma once
#include "cartpole.h"
