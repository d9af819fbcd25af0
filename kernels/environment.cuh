// What an environment's header builds on. kernels/env_step.cu and kernels/env_reset.cu include one such header, which defines
//
//   struct Environment {
//     reset(draws, state)                              first state of the episode                        state (LS_STATE)
//     step(draws, action, state, reward, terminated)   one step; the time limit is not the environment's concern
//     observe(state, observation)                      what the policy sees                     observation (LS_OBSERVATION)
//   };
//
// Pure functions of their arguments on small float arrays. `action` is valid when it arrives: one int in [0, LS_ACTIONS), or
// LS_ACTIONS floats within the bounds. Randomness comes from `draws` alone, mathematics from kernels/math.cuh alone.
// Compile-time constants, from the Python spec: LS_STATE, LS_OBSERVATION, LS_ACTIONS (how many discrete actions, or how many
// dimensions), LS_DISCRETE (1 or 0).
#pragma once
#include "device.cuh"
#include "math.cuh"
#include "philox.cuh"
