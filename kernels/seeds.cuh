// Who draws what: every use of randomness has a counter of its own.
//
// The trainer's draws: key = run seed, counter = (index, step or update, purpose, rank).
// An environment's draws: key = its episode seed, counter = (step, purpose, 0, 0), so that an episode depends on
// nothing but its seed and its actions.
#pragma once
#include "philox.cuh"

enum Purpose : unsigned {
    PURPOSE_WEIGHTS = 1,
    PURPOSE_ACTION = 2,
    PURPOSE_SHUFFLE = 3,
    PURPOSE_EPISODE = 4,
    PURPOSE_RESET = 5,
    PURPOSE_DYNAMICS = 6,
    PURPOSE_PARAMETERS = 7,
};

// The two top bits of an episode seed are its split, so that training and evaluation cannot meet.
enum Split : unsigned {
    SPLIT_TRAIN = 0,
    SPLIT_SELECTION = 1,
    SPLIT_HELD_OUT = 2,
};

// The seed of a training episode: 62 bits of Philox over (run seed, environment, episode), split bits 00.
DEVICE unsigned long long training_episode_seed(unsigned long long run_seed, unsigned environment,
                                                unsigned long long episode) {
    const Philox r = philox(environment, (unsigned)episode, PURPOSE_EPISODE, (unsigned)(episode >> 32), run_seed);
    return (((unsigned long long)r.word[0] << 32) | r.word[1]) & 0x3fffffffffffffffull;
}
