// Password: the actions 2, 0, 1, 1, 2 in this order earn 1 at the end; a wrong one ends the episode with nothing. What
// is seen is how many were right, one-hot. Best return: 1, after five steps; the chance of a guess is 1 in 243.
#pragma once
#include "environment.cuh"

struct Environment {
    static_assert(LS_STATE == 1 && LS_OBSERVATION == 5 && LS_DISCRETE && LS_ACTIONS == 3, "password: five of three");

    static DEVICE_MEMBER void reset(const Draws&, float* state) { state[0] = 0.0f; }
    static DEVICE_MEMBER void step(const Draws&, const ActionElement* action, float* state, float& reward,
                                   bool& terminated) {
        const int password[5] = {2, 0, 1, 1, 2};
        const int place = (int)state[0];
        const bool right = action[0] == password[place < 5 ? place : 4];
        state[0] = right ? state[0] + 1.0f : state[0];
        const bool complete = state[0] == 5.0f;
        reward = complete ? 1.0f : 0.0f;
        terminated = complete || !right;
    }
    static DEVICE_MEMBER void observe(const float* state, float* observation) {
        for (int k = 0; k < 5; k++) observation[k] = state[0] == (float)k ? 1.0f : 0.0f;
    }
};
