// Scripted: plays what test_ppo.py wrote into its state, whatever is done. State: the value that is observed, the steps
// until it is 8, and whether it dies then. The next episode begins at 100.
#pragma once
#include "environment.cuh"

struct Environment {
    static_assert(LS_STATE == 3 && LS_OBSERVATION == 1, "scripted: a value, steps, and how it ends");

    static DEVICE_MEMBER void reset(const Draws&, float* state) {
        state[0] = 100.0f;
        state[1] = state[2] = 0.0f;
    }
    static DEVICE_MEMBER void step(const Draws&, const ActionElement*, float* state, float& reward, bool& terminated) {
        state[1] -= 1.0f;
        const bool over = state[1] == 0.0f;
        state[0] = over ? 8.0f : state[0] == 100.0f ? 6.0f : state[0] + 1.0f;
        reward = 1.0f;
        terminated = over && state[2] == 1.0f;
    }
    static DEVICE_MEMBER void observe(const float* state, float* observation) { observation[0] = state[0]; }
};
