// GridMaze: find the way to a goal in a maze that was never seen before, in float32.
//
// The maze has 8 x 8 cells, x to the right and y upward, both 0 to 7; beyond lies wall. About three cells of eight are
// walls. The same episode seed always gives the same maze.
//
// State:
//   0     x       cells, where one stands
//   1     y       cells
//   2     goal x  cells
//   3     goal y  cells
//   4..7  walls   of rows 0 and 1, 2 and 3, 4 and 5, 6 and 7: bit x of the integer is 1 where the lower row has a wall, bit
//                 8 + x where the upper one has
// Observation, a window of 7 x 7 cells around the place where one stands, so the maze is partly observed:
//   0..47  1 where a cell of the window is wall, else 0; row by row from below, each from the left, without one's own
//   48     (goal x - x) / 7
//   49     (goal y - y) / 7
// Action: 0 walks right, 1 up, 2 left, 3 down, by one cell; into a wall it stays.
// Reward: -0.01 for every step, and 1 for reaching the goal.
//   The best return is 1 - 0.01 d, d the steps on the shortest way.
// Start: an episode draws walls, a place and a goal anew until the maze is one of its split's (below), neither place nor goal
//   is wall, and the shortest way takes 6 steps or more. So each maze has a way.
// Splits: a hash of the walls says whose a maze is: half of all mazes are training's, a quarter each are selection's and the
//   held-out ones. The split of the episode seed, its two top bits, must be the same: a held-out maze occurs in no training
//   episode, whatever the run seed.
// End: terminated at the goal; truncated at the time limit (100 steps), elsewhere.
// Version: 0.
#pragma once
#include "environment.cuh"

struct Environment {
    typedef unsigned long long Cells;  // bit x + 8 y
    static constexpr int EDGE = 7, WORDS = 4, REACH = 3, WINDOW = 7, WAY = 6;
    static_assert(LS_STATE == 4 + WORDS, "gridmaze: place, goal, two rows of walls a word");
    static_assert(LS_OBSERVATION == WINDOW * WINDOW - 1 + 2, "gridmaze: a window and the way to the goal");
    static_assert(LS_DISCRETE && LS_ACTIONS == 4, "gridmaze: four discrete actions");

    // Bits of a coordinate: of any float a cell.
    static DEVICE_MEMBER int cell(float coordinate) { return (int)(natural(coordinate) & 7u); }

    static DEVICE_MEMBER Cells walls_of(const float* state) {
        Cells walls = 0;
        IN_REGISTERS for (int k = 0; k < WORDS; k++) walls |= (Cells)(natural(state[4 + k]) & 0xffffu) << 16 * k;
        return walls;
    }

    // Which split's a maze is: 0 twice as often as 1 and 2. The mixing is that of SplitMix64 (Steele, Lea, Flood 2014).
    static DEVICE_MEMBER unsigned split_of(Cells walls) {
        Cells mixed = (walls ^ walls >> 30) * 0xbf58476d1ce4e5b9ull;
        mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebull;
        return kind((unsigned)((mixed ^ mixed >> 31) >> 62));
    }
    static DEVICE_MEMBER unsigned kind(unsigned two_bits) { return two_bits == 3 ? (unsigned)SPLIT_TRAIN : two_bits; }

    // Steps on the shortest way between two cells, 0 where there is none.
    static DEVICE_MEMBER int distance(Cells walls, Cells from, Cells to) {
        const Cells left = 0x0101010101010101ull, right = left << 7;
        Cells reached = from, before = 0;
        int steps = 0;
        for (; reached != before && !(reached & to); steps++) {
            before = reached;
            reached |= reached << 8 | reached >> 8 | (reached & ~right) << 1 | (reached & ~left) >> 1;
            reached &= ~walls;
        }
        return reached & to ? steps : 0;
    }

    static DEVICE_MEMBER void reset(const Draws& draws, float* state) {
        const unsigned split = kind((unsigned)(draws.episode_seed >> 62));
        for (unsigned trial = 0;; trial++) {
            const Philox a = draws(2 * trial), b = draws(2 * trial + 1);
            const unsigned low = a.word[0] & (a.word[1] | a.word[2]), high = a.word[3] & (b.word[0] | b.word[1]);
            const Cells walls = (Cells)high << 32 | low;
            const unsigned place = b.word[2] >> 26, goal = b.word[3] >> 26;
            const Cells from = 1ull << place, to = 1ull << goal;
            if (split_of(walls) != split || walls & (from | to) || distance(walls, from, to) < WAY) continue;
            state[0] = (float)(place & 7u);
            state[1] = (float)(place >> 3);
            state[2] = (float)(goal & 7u);
            state[3] = (float)(goal >> 3);
            IN_REGISTERS for (int k = 0; k < WORDS; k++) state[4 + k] = (float)(unsigned)(walls >> 16 * k & 0xffffu);
            return;
        }
    }

    static DEVICE_MEMBER void step(const Draws&, const ActionElement* action, float* state, float& reward,
                                   bool& terminated) {
        const float nothing = state[0] - state[0];  // 0; NaN in a state that is none
        const float to_x = action[0] == 0 ? 1.0f : action[0] == 2 ? -1.0f : 0.0f;
        const float to_y = action[0] == 1 ? 1.0f : action[0] == 3 ? -1.0f : 0.0f;
        const float x = bounded(state[0] + to_x, 0.0f, (float)EDGE), y = bounded(state[1] + to_y, 0.0f, (float)EDGE);
        const bool wall = walls_of(state) >> (cell(x) + 8 * cell(y)) & 1u;
        state[0] = wall ? state[0] : x;
        state[1] = wall ? state[1] : y;
        terminated = state[0] == state[2] && state[1] == state[3];
        reward = nothing + (terminated ? 0.99f : -0.01f);
    }

    static DEVICE_MEMBER void observe(const float* state, float* observation) {
        const float nothing = state[0] - state[0], wall = 1.0f + nothing;
        const Cells walls = walls_of(state);
        const int x = cell(state[0]), y = cell(state[1]);
        IN_REGISTERS for (int row = 0; row < WINDOW; row++) {
            const int at = y + row - REACH;
            const unsigned cells = at >= 0 && at <= EDGE ? (unsigned)(walls >> 8 * (at & 7)) & 0xffu : 0xffu;
            const unsigned seen = (cells << REACH | 7u | 7u << (EDGE + 1 + REACH)) >> x;  // from x - 3 on
            IN_REGISTERS for (int column = 0; column < WINDOW; column++) {
                const int k = WINDOW * row + column, own = WINDOW * REACH + REACH;
                if (k != own) observation[k < own ? k : k - 1] = seen >> column & 1u ? wall : nothing;
            }
        }
        observation[48] = (state[2] - state[0]) / 7.0f;
        observation[49] = (state[3] - state[1]) / 7.0f;
    }
};
