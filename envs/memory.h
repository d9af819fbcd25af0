// Memory: four symbols are shown, then nothing, then they are to be said in the same order, in float32. What is to be said
// stands in no observation any more: it needs a policy with a memory.
//
// State:
//   0  time     steps of the episode, 0 to 16
//   1  symbols  bit k of the integer is 1 where the symbol of time k is B, else it is A; 0 to 15
//   2  speak    the time from which on it is time to speak, 5 to 12
// Observation:
//   0  1 while A is shown, else 0
//   1  1 while B is shown, else 0
//   2  1 while it is time to speak, else 0
// At times 0 to 3 a symbol is shown, then nothing, and from `speak` on it is time to speak for four steps.
// Action: 0 is silence, 1 says A, 2 says B.
// Reward: 0.25 for saying at time speak + k the symbol of time k; -0.05 for speaking before; 0 elsewhere.
//   The best return is 1. A policy without memory sees the same four times in every episode when it is to speak, so what it
//   says is right half the time whatever it says: its best return is 4 x 0.25 x 1/2 = 0.5 on average.
// Start: time 0, each symbol A or B with equal chance, `speak` uniform.
// End: terminated after the fourth step of speaking; truncated at the time limit (20 steps: never, unless it is set lower),
//   elsewhere.
// Version: 0.
#pragma once
#include "environment.cuh"

struct Environment {
    static constexpr unsigned SYMBOLS = 4, FIRST = 5, LAST = 12;
    static_assert(LS_STATE == 3 && LS_OBSERVATION == 3, "memory: time, symbols, speak; A, B and when to speak");
    static_assert(LS_DISCRETE && LS_ACTIONS == 3, "memory: three discrete actions");

    // Whether the symbol of a time is B.
    static DEVICE_MEMBER bool is_b(const float* state, unsigned time) { return natural(state[1]) >> (time & 3u) & 1u; }

    static DEVICE_MEMBER void reset(const Draws& draws, float* state) {
        const Philox bits = draws();
        state[0] = 0.0f;
        state[1] = (float)choice(1u << SYMBOLS, bits.word[0]);
        state[2] = (float)(FIRST + choice(LAST - FIRST + 1, bits.word[1]));
    }

    static DEVICE_MEMBER void step(const Draws&, const ActionElement* action, float* state, float& reward,
                                   bool& terminated) {
        const bool speak = state[0] >= state[2];
        const unsigned said = natural(state[0]) - natural(state[2]);  // before this step, when it is time to speak
        const bool right = speak && action[0] == (is_b(state, said) ? 2 : 1);
        reward = state[0] - state[0] + (right ? 0.25f : !speak && action[0] != 0 ? -0.05f : 0.0f);  // NaN stays NaN
        state[0] += 1.0f;
        terminated = state[0] >= state[2] + (float)SYMBOLS;
    }

    static DEVICE_MEMBER void observe(const float* state, float* observation) {
        const float nothing = state[0] - state[0];  // 0; NaN in a state that is none
        const bool shown = state[0] < (float)SYMBOLS, b = is_b(state, natural(state[0]));
        const bool speak = state[0] >= state[2] && state[0] < state[2] + (float)SYMBOLS;
        observation[0] = nothing + (shown && !b ? 1.0f : 0.0f);
        observation[1] = nothing + (shown && b ? 1.0f : 0.0f);
        observation[2] = nothing + (speak ? 1.0f : 0.0f);
    }
};
