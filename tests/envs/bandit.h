// Bandit: one step an episode, four arms that pay 1 with the probabilities 0.2, 0.4, 0.8 and 0.6. Best return: 0.8.
#pragma once
#include "environment.cuh"

struct Environment {
    static_assert(LS_STATE == 1 && LS_OBSERVATION == 1 && LS_DISCRETE && LS_ACTIONS == 4, "bandit: four arms");

    static DEVICE_MEMBER void reset(const Draws&, float* state) { state[0] = 1.0f; }
    static DEVICE_MEMBER void step(const Draws& draws, const ActionElement* action, float*, float& reward,
                                   bool& terminated) {
        const float pays[4] = {0.2f, 0.4f, 0.8f, 0.6f};
        reward = between(0.0f, 1.0f, draws().word[0]) < pays[action[0]] ? 1.0f : 0.0f;
        terminated = true;
    }
    static DEVICE_MEMBER void observe(const float* state, float* observation) { observation[0] = state[0]; }
};
