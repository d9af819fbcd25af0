// A dial of three places and a switch: half a reward for each choice that the observation asks for.
#pragma once
#include "environment.cuh"

struct Environment {
    static DEVICE_MEMBER void draw(const Draws& draws, float* state) {
        const Philox bits = draws();
        state[0] = (float)(bits.word[0] % 3u);
        state[1] = (float)(bits.word[1] % 2u);
    }
    static DEVICE_MEMBER void reset(const Draws& draws, float* state) { draw(draws, state); }
    static DEVICE_MEMBER void step(const Draws& draws_, const ActionElement* action, float* state, float& reward,
                                   bool& terminated) {
        reward = (action[0] == (int)state[0] ? 0.5f : 0.0f) + (action[1] == (int)state[1] ? 0.5f : 0.0f);
        terminated = false;
        draw(draws_, state);
    }
    static DEVICE_MEMBER void observe(const float* state, float* observation) {
        for (int place = 0; place < 3; place++) observation[place] = (int)state[0] == place ? 1.0f : 0.0f;
        observation[3] = state[1];
    }
};
