// Memory: four symbols are shown, then nothing, then they are to be said in the same order, in float32. What is to be said
// stands in no observation any more: it needs a policy with a memory.
//
// State:
//   0  time     steps of the episode, 0 to 12
//   1  symbols  bit k of the integer is 1 where the symbol of time k is B, else it is A; 0 to 15
// Observation:
//   0  1 while A is shown, else 0
//   1  1 while B is shown, else 0
//   2  1 while it is time to speak, else 0
// At times 0 to 3 a symbol is shown, at 4 to 7 nothing, at 8 to 11 it is time to speak.
// Action: 0 is silence, 1 says A, 2 says B.
// Reward: 0.25 for saying at time 8 + k the symbol of time k; -0.05 for speaking before time 8; 0 elsewhere.
//   The best return is 1. A policy without memory sees the same at times 8 to 11 in every episode, so each thing it says
//   is right half the time whatever it says: its best return is 4 x 0.25 x 1/2 = 0.5 on average.
// Start: time 0, each symbol A or B with equal chance.
// End: terminated after the step of time 11; truncated at the time limit (20 steps: never, unless it is set below 12),
//   elsewhere.
// Version: 0.
#pragma once
#include "environment.cuh"

struct Environment {
    static constexpr unsigned SYMBOLS = 4, SPEAK = 8, END = 12;
    static_assert(LS_STATE == 2 && LS_OBSERVATION == 3, "memory: time and symbols; A, B and when to speak");
    static_assert(LS_DISCRETE && LS_ACTIONS == 3, "memory: three discrete actions");

    // Whether the symbol of a time is B.
    static DEVICE_MEMBER bool is_b(const float* state, unsigned time) { return natural(state[1]) >> (time & 3u) & 1u; }

    static DEVICE_MEMBER void reset(const Draws& draws, float* state) {
        state[0] = 0.0f;
        state[1] = (float)choice(1u << SYMBOLS, draws().word[0]);
    }

    static DEVICE_MEMBER void step(const Draws&, const ActionElement* action, float* state, float& reward,
                                   bool& terminated) {
        const unsigned time = natural(state[0]);
        const bool early = time < SPEAK && action[0] != 0;
        const bool right = time >= SPEAK && action[0] == (is_b(state, time - SPEAK) ? 2 : 1);
        reward = state[0] - state[0] + (early ? -0.05f : right ? 0.25f : 0.0f);  // NaN in a state that is none
        state[0] += 1.0f;
        terminated = state[0] >= (float)END;
    }

    static DEVICE_MEMBER void observe(const float* state, float* observation) {
        const float nothing = state[0] - state[0];
        const unsigned time = natural(state[0]);
        const bool shown = time < SYMBOLS, b = is_b(state, time);
        observation[0] = nothing + (shown && !b ? 1.0f : 0.0f);
        observation[1] = nothing + (shown && b ? 1.0f : 0.0f);
        observation[2] = nothing + (time >= SPEAK && time < END ? 1.0f : 0.0f);
    }
};
