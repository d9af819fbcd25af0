// Squared: walk from the middle of a square to the targets on its edge, in float32. A game of its own, after the idea of
// PufferLib's small test environment of that name.
//
// The square has 11 x 11 cells, x to the right and y upward, both 0 to 10. One target stands on each side, the corner
// where the side begins included.
//
// State:
//   0     x     cells
//   1     y     cells
//   2..5  target of the lower, right, upper and left side: its distance from the corner where the side begins, walking
//         around counter-clockwise, 0 to 9 cells; 10 once it was hit
// Observation:
//   0     (x - 5) / 5
//   1     (y - 5) / 5
//   2..13 of each target: 1 while it stands, and the way there in x and in y, / 10; three zeros once it was hit
// Action: 0 stays, 1 walks right, 2 up, 3 left, 4 down, by one cell; at the edge it stays.
// Reward: 1 for the target whose cell is reached; elsewhere 0.1 times the cells by which the nearest target has come
//   nearer (of |x| + |y|; at most one cell a step, so within [-0.1, 0.1]).
//   The best return is the sum over the targets of 1 + 0.1 (d - 1), d the steps there from the middle, 5 to 10: whoever
//   always walks to the nearest one earns it, 5.6 to 7.6.
// Start, and after a hit: in the middle, (5, 5). The targets are uniform on their sides.
// End: terminated when no target is left; truncated at the time limit (100 steps), elsewhere.
// Version: 0.
#pragma once
#include "environment.cuh"

struct Environment {
    static constexpr int TARGETS = 4, EDGE = 10, MIDDLE = 5, FAR = 99;
    static_assert(LS_STATE == 2 + TARGETS, "squared: where one stands, a target on each side");
    static_assert(LS_OBSERVATION == 2 + 3 * TARGETS, "squared: where one stands, three numbers of each target");
    static_assert(LS_DISCRETE && LS_ACTIONS == 5, "squared: five discrete actions");

    struct Way {
        bool standing;
        int x, y, steps;  // FAR where it was hit
    };
    static DEVICE_MEMBER Way way(const float* state, int side) {
        const int x = (int)natural(state[0]), y = (int)natural(state[1]), along = (int)natural(state[2 + side]);
        const int target_x = side == 0 ? along : side == 1 ? EDGE : side == 2 ? EDGE - along : 0;
        const int target_y = side == 0 ? 0 : side == 1 ? along : side == 2 ? EDGE : EDGE - along;
        const int to_x = target_x - x, to_y = target_y - y;
        const bool standing = along < EDGE;
        return Way{standing, to_x, to_y, standing ? (to_x < 0 ? -to_x : to_x) + (to_y < 0 ? -to_y : to_y) : FAR};
    }

    // Steps to the nearest target.
    static DEVICE_MEMBER int nearest(const float* state) {
        int steps = FAR;
        IN_REGISTERS for (int side = 0; side < TARGETS; side++) {
            const int other = way(state, side).steps;
            steps = other < steps ? other : steps;
        }
        return steps;
    }

    static DEVICE_MEMBER void reset(const Draws& draws, float* state) {
        const Philox bits = draws();
        state[0] = state[1] = (float)MIDDLE;
        IN_REGISTERS for (int side = 0; side < TARGETS; side++) state[2 + side] = (float)choice(EDGE, bits.word[side]);
    }

    static DEVICE_MEMBER void step(const Draws&, const ActionElement* action, float* state, float& reward,
                                   bool& terminated) {
        const float nothing = state[0] - state[0];  // 0; NaN in a state that is none
        const int before = nearest(state);
        const float to_x = action[0] == 1 ? 1.0f : action[0] == 3 ? -1.0f : 0.0f;
        const float to_y = action[0] == 2 ? 1.0f : action[0] == 4 ? -1.0f : 0.0f;
        state[0] = bounded(state[0] + to_x, 0.0f, (float)EDGE);
        state[1] = bounded(state[1] + to_y, 0.0f, (float)EDGE);
        const int after = nearest(state);
        bool any = false;
        IN_REGISTERS for (int side = 0; side < TARGETS; side++) {
            const Way there = way(state, side);
            state[2 + side] = there.steps == 0 ? (float)EDGE : state[2 + side];
            any = any || (there.standing && there.steps > 0);
        }
        const bool hit = after == 0;
        state[0] = hit ? (float)MIDDLE : state[0];
        state[1] = hit ? (float)MIDDLE : state[1];
        reward = nothing + (hit ? 1.0f : 0.1f * (float)(before - after));
        terminated = !any && nothing == 0.0f;
    }

    static DEVICE_MEMBER void observe(const float* state, float* observation) {
        const float nothing = state[0] - state[0];
        observation[0] = (state[0] - 5.0f) / 5.0f;
        observation[1] = (state[1] - 5.0f) / 5.0f;
        IN_REGISTERS for (int side = 0; side < TARGETS; side++) {
            const Way there = way(state, side);
            observation[2 + 3 * side] = nothing + (there.standing ? 1.0f : 0.0f);
            observation[3 + 3 * side] = nothing + (there.standing ? (float)there.x / 10.0f : 0.0f);
            observation[4 + 3 * side] = nothing + (there.standing ? (float)there.y / 10.0f : 0.0f);
        }
    }
};
