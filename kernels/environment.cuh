// What an environment's header builds on, and what it has to define. env_step.cu and env_reset.cu are compiled behind
// one such header (envs/<name>.h), which includes this file and defines
//
//   struct Environment {
//       static void reset(const Draws& draws, float* state);  // the first state of an episode
//       static void step(const Draws& draws, const ActionElement* action, float* state, float& reward,
//                        bool& terminated);
//       static void observe(const float* state, float* observation);  // what the policy sees
//   };
//
// Pure functions on small arrays, state (LS_STATE) and observation (LS_OBSERVATION). The time limit is not theirs. An
// action is valid when it arrives: one int in [0, LS_ACTIONS), or LS_ACTIONS floats within the bounds. All randomness
// comes from `draws`, all mathematics from math.cuh. The constants come from the Python spec: LS_DISCRETE is 1 or 0,
// LS_ACTIONS the number of actions or of action dimensions. Dynamics without a branch (`&` and `|`, `blend`, `bounded`)
// are stepped several environments at once.
//
// Several agents may share a world: each is a row of N, the LS_AGENTS rows of a world lie together, and they have their
// episode in common, from its seed to its end. Such a header has one function of another form and two with wider arrays,
// what belongs to agent 0 first:
//
//       static void reset(const Draws& draws, float* state);       // (AGENTS * LS_STATE)
//       static void step(const Draws& draws, const ActionElement* action, float* state, float* reward,
//                        bool& terminated);                        // (AGENTS * ACTION_WIDTH), ..., (AGENTS)
//       static void observe(const float* state, int agent, float* observation);
//
// PARAMETER(name, value) is a physical parameter: its value, or where the configuration gives it a range, what the episode
// drew. A drawn one lies in the state, behind the environment's own: such code has its state at hand under that name, and
// LS_STATE counts the LS_PARAMETERS drawn ones too. envs/parameters.py writes LS_PARAMETERS, LS_RANGES (the lowest and the
// highest value of each in training, then of each in held-out episodes) and DRAWN_<name> (its place among the drawn, or -1).
#pragma once
#include "actions.cuh"

#ifndef LS_AGENTS
#define LS_AGENTS 1
#endif
constexpr int AGENTS = LS_AGENTS;

#ifdef LS_PARAMETERS
#define PARAMETER(name, value) (DRAWN_##name < 0 ? (value) : state[LS_STATE - LS_PARAMETERS + DRAWN_##name])
#else
#define LS_PARAMETERS 0
#define PARAMETER(name, value) (value)
#endif
static_assert(AGENTS == 1 || LS_PARAMETERS == 0, "parameters are drawn for worlds of one agent");

// An episode's random words at one step: nothing but its seed and the step enters them.
struct Draws {
    unsigned long long episode_seed;
    unsigned step;  // 0 at the reset, then 1, 2, ...
    unsigned purpose;

    // Four words; further ones for every other `block`.
    DEVICE_MEMBER Philox operator()(unsigned block = 0) const { return philox(step, purpose, block, 0, episode_seed); }
};

// Uniform in [low, high].
DEVICE float between(float low, float high, unsigned word) { return low + (high - low) * uniform(word); }

// `a` where the condition holds, else `b`. Made of bits, since compilers turn `?:` back into branches, which keep a loop
// over environments out of the vector lanes.
DEVICE float blend(bool condition, float a, float b) {
    return as_float(as_bits(b) ^ ((as_bits(a) ^ as_bits(b)) & (0u - (unsigned)condition)));
}

// The nearest number within [low, high]; NaN stays NaN.
DEVICE float bounded(float value, float low, float high) {
    return blend(value > high, high, blend(value < low, low, value));
}

// What an episode draws of its parameters: uniform in the range of its seed's split, and nowhere else by construction.
DEVICE void draw_parameters(unsigned long long seed, float* parameters) {
#if LS_PARAMETERS
    const float ranges[] = {LS_RANGES};
    const int first = seed >> 62 == SPLIT_HELD_OUT ? 2 * LS_PARAMETERS : 0;
    for (int k = 0; k < LS_PARAMETERS; k++) {
        const float low = ranges[first + 2 * k], high = ranges[first + 2 * k + 1];
        const unsigned word = philox((unsigned)k, PURPOSE_PARAMETERS, 0, 0, seed).word[0];
        parameters[k] = bounded(between(low, high, word), low, high);
    }
#endif
}

// The natural number below 2^23 that a float holds; of any other float some number below 2^23.
DEVICE unsigned natural(float value) { return as_bits(value + 8388608.0f) & 0x7fffffu; }

// One of 0, 1, ..., n - 1 from a random word.
DEVICE unsigned choice(unsigned n, unsigned word) { return multiply_high(word, n); }

// A step of a world: its state (AGENTS * LS_STATE), one action and one reward an agent.
template <class E>
DEVICE_MEMBER void step_world(const Draws& draws, const ActionElement* action, float* state, float* reward,
                              bool& terminated) {
    if constexpr (AGENTS == 1)
        E::step(draws, action, state, *reward, terminated);
    else
        E::step(draws, action, state, reward, terminated);
}

// What an agent of a world sees.
template <class E>
DEVICE_MEMBER void observe_world(const float* state, int agent, float* observation) {
    if constexpr (AGENTS == 1)
        E::observe(state, observation);
    else
        E::observe(state, agent, observation);
}

// Begins the episode of a seed in the world whose first row is n: state (LS_STATE, N), observation (N, LS_OBSERVATION).
template <class E>
DEVICE_MEMBER void begin_episode(unsigned long long seed, int n, int N, float* state, float* observation) {
    float s[AGENTS * LS_STATE];
    draw_parameters(seed, s + LS_STATE - LS_PARAMETERS);
    E::reset(Draws{seed, 0, PURPOSE_RESET}, s);
    IN_REGISTERS for (int agent = 0; agent < AGENTS; agent++)
        for (int k = 0; k < LS_STATE; k++) state[k * N + n + agent] = s[agent * LS_STATE + k];
    ROLLED for (int agent = 0; agent < AGENTS; agent++)
        observe_world<E>(s, agent, observation + (n + agent) * LS_OBSERVATION);
}
