// Stochastic: the absent-minded driver of Piccione and Rubinstein, "On the interpretation of decision problems with
// imperfect recall", Games and Economic Behavior 20, 1997. Two exits that look the same: leaving (0) at the first earns
// 0, at the second 4, and going on (1) past both 1. Going on with probability q earns 4 q (1 - q) + q^2, at most 4/3
// with q = 2/3; who never mixes earns 0 or 1.
#pragma once
#include "environment.cuh"

struct Environment {
    static_assert(LS_STATE == 1 && LS_OBSERVATION == 1 && LS_DISCRETE && LS_ACTIONS == 2, "stochastic: leave or go on");

    static DEVICE_MEMBER void reset(const Draws&, float* state) { state[0] = 0.0f; }
    static DEVICE_MEMBER void step(const Draws&, const ActionElement* action, float* state, float& reward,
                                   bool& terminated) {
        const bool second = state[0] == 1.0f, leaves = action[0] == 0;
        reward = second ? (leaves ? 4.0f : 1.0f) : 0.0f;
        terminated = second || leaves;
        state[0] = 1.0f;
    }
    static DEVICE_MEMBER void observe(const float*, float* observation) { observation[0] = 1.0f; }
};
