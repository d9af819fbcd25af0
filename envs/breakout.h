// Breakout: return a ball with a paddle until it has broken every brick of a wall, in float32. A game of its own, after
// Atari's (1976) with its 6 rows of 18 bricks, its points and its five balls; no copy of any other implementation.
//
// Units: a brick is 2 wide and 1 high, the field 36 wide (x to the right) and 24 high (y upward from the paddle); time
// is the step. The wall fills y from 14 to 20, so that a ball may also pass behind it.
//
// State:
//   0      paddle's middle        x     kept within [3, 33]: the paddle is 6 wide and moves by 1.5 a step
//   1      ball                   x     kept within [0, 36]; a point
//   2      ball                   y     kept within [0, 24]
//   3      ball's velocity in x   a step
//   4      ball's velocity in y   a step, always downward or upward
//   5      balls left             5 at the start
//   6      hits                   by the paddle since this ball came; counted up to 12
//   7..12  rows of the wall       from the bottom up; bit c of the integer is 1 where the brick of column c stands
// Observation, lengths in half paddles so that the ball is not lost among a hundred bricks:
//   0      paddle x               (x - 18) / 3, within [-5, 5]
//   1      ball x                 (x - 18) / 3, within [-6, 6]
//   2      ball y                 (y - 12) / 3, within [-4, 4]
//   3      ball's velocity in x   / 0.3, within [-4.5, 4.5]
//   4      ball's velocity in y   / 0.3, within [-3, 3]
//   5      balls left             / 5
//   6      hits                   / 12
//   7..114 bricks                 1 where one stands, else 0; row by row from the bottom, each from the left
// Action: 0 nothing, 1 paddle to the left, 2 to the right.
// Reward: 1, 1, 4, 4, 7 or 7 for a brick, by its row from the bottom; 0 elsewhere. The whole wall is worth 432.
//
// A step moves the paddle, then the ball. At the sides and at the top the ball is mirrored. Where it would enter a brick,
// the brick goes and the ball stays for this step with its velocity turned: in y when the brick lies straight above or
// below, in x when it lies straight beside, in both when only the corner is met; at most one brick a step. At y < 0 the
// paddle returns it if it reaches that far: upward with the ball's speed, sideways with 1.5 speeds at the paddle's edge and
// none in its middle. The speed is 0.6, from a ball's 4th hit on 0.75, from its 12th on 0.9.
// Start, and after a lost ball: ball at (18, 12), velocity in x uniform in [-0.9, 0.9], in y -0.6. The paddle begins in the
// middle and stays where it is when a ball is lost.
// End: terminated when the fifth ball is lost or the wall is gone; truncated at the time limit (10000 steps), elsewhere.
// Version: 0.
#pragma once
#include "environment.cuh"

struct Environment {
    static constexpr int ROWS = 6, COLUMNS = 18, SCALARS = 7;
    static_assert(LS_STATE == SCALARS + ROWS, "breakout: paddle, ball, balls left, hits, rows of bricks");
    static_assert(LS_OBSERVATION == SCALARS + ROWS * COLUMNS, "breakout: the same, brick by brick");
    static_assert(LS_DISCRETE && LS_ACTIONS == 3, "breakout: three discrete actions");

    static constexpr unsigned WHOLE_ROW = (1u << COLUMNS) - 1u;
    static constexpr float WIDTH = 36.0f, HEIGHT = 24.0f, WALL = 14.0f;

    // The bits of a row, by an addition that leaves them at the end of the mantissa: any float gives some row.
    static DEVICE_MEMBER unsigned bricks(float row) { return as_bits(row + 8388608.0f) & WHOLE_ROW; }

    // Index of the row at height y; -1 above and below the wall.
    static DEVICE_MEMBER int row_at(float y) {
        const float above = y - WALL;
        return above >= 0.0f && above < (float)ROWS ? (int)above : -1;
    }

    // The bit of the column at x; beyond the sides the outermost.
    static DEVICE_MEMBER unsigned column_at(float x) {
        const float column = 0.5f * x;
        return 1u << (column > 0.0f ? column < COLUMNS - 1.0f ? (int)column : COLUMNS - 1 : 0);
    }

    static DEVICE_MEMBER unsigned row_of(const unsigned* rows, int row) {
        unsigned found = 0;
        for (int r = 0; r < ROWS; r++) found = r == row ? rows[r] : found;
        return found;
    }

    static DEVICE_MEMBER void launch_ball(const Draws& draws, float* state) {
        state[1] = 0.5f * WIDTH;
        state[2] = 12.0f;
        state[3] = between(-0.9f, 0.9f, draws().word[0]);
        state[4] = -0.6f;
        state[6] = 0.0f;
    }

    static DEVICE_MEMBER void reset(const Draws& draws, float* state) {
        state[0] = 0.5f * WIDTH;
        state[5] = 5.0f;
        launch_ball(draws, state);
        for (int r = 0; r < ROWS; r++) state[SCALARS + r] = (float)(int)WHOLE_ROW;
    }

    static DEVICE_MEMBER void step(const Draws& draws, const ActionElement* action, float* state, float& reward,
                                   bool& terminated) {
        const float reach = 3.0f, paddle_speed = 1.5f;

        const float push = action[0] == 1 ? -paddle_speed : action[0] == 2 ? paddle_speed : 0.0f;
        const float pushed = state[0] + push;
        const float paddle = pushed < reach ? reach : pushed > WIDTH - reach ? WIDTH - reach : pushed;

        const float x = state[1], y = state[2], v_x = state[3], v_y = state[4];
        const float free_x = x + v_x, free_y = y + v_y;
        const bool at_left = free_x < 0.0f, at_right = free_x > WIDTH, at_top = free_y > HEIGHT;
        const float next_x = at_left ? -free_x : at_right ? 2.0f * WIDTH - free_x : free_x;
        const float next_y = at_top ? 2.0f * HEIGHT - free_y : free_y;

        unsigned rows[ROWS];
        for (int r = 0; r < ROWS; r++) rows[r] = bricks(state[SCALARS + r]);
        const int row = row_at(y), next_row = row_at(next_y);
        const unsigned column = column_at(x), next_column = column_at(next_x);
        const unsigned ahead = row_of(rows, next_row);
        const bool above_or_below = ahead & column;
        const bool beside = !above_or_below && (row_of(rows, row) & next_column);
        const bool hit = above_or_below || beside || (ahead & next_column);
        const int hit_row = beside ? row : next_row;
        const unsigned hit_column = !hit ? 0u : above_or_below ? column : next_column;
        unsigned standing = 0;
        for (int r = 0; r < ROWS; r++) {
            rows[r] &= ~(r == hit_row ? hit_column : 0u);
            standing |= rows[r];
            state[SCALARS + r] = (float)(int)rows[r];
        }
        const bool turn_x = hit ? !above_or_below : at_left || at_right;
        const bool turn_y = hit ? !beside : at_top;

        state[0] = paddle;
        state[1] = hit ? x : next_x;
        state[2] = hit ? y : next_y;
        const float offset = (state[1] - paddle) / reach;
        const bool down = state[2] < 0.0f, caught = down && offset >= -1.0f && offset <= 1.0f, lost = down && !caught;
        state[6] = caught && state[6] < 12.0f ? state[6] + 1.0f : state[6];
        const float speed = state[6] < 4.0f ? 0.6f : state[6] < 12.0f ? 0.75f : 0.9f;
        state[2] = caught ? -state[2] : lost ? 0.0f : state[2];
        state[3] = caught ? 1.5f * speed * offset : turn_x ? -v_x : v_x;
        state[4] = caught ? speed : turn_y ? -v_y : v_y;
        state[5] = lost ? state[5] - 1.0f : state[5];

        const float nothing = x - x;  // 0; NaN in a state that is none
        reward = !hit ? nothing : hit_row < 2 ? 1.0f : hit_row < 4 ? 4.0f : 7.0f;
        const bool lost_the_last = lost && state[5] < 1.0f;
        terminated = lost_the_last || (hit && standing == 0);
        if (lost && !lost_the_last) launch_ball(draws, state);
    }

    static DEVICE_MEMBER void observe(const float* state, float* observation) {
        observation[0] = (state[0] - 18.0f) / 3.0f;
        observation[1] = (state[1] - 18.0f) / 3.0f;
        observation[2] = (state[2] - 12.0f) / 3.0f;
        observation[3] = state[3] / 0.3f;
        observation[4] = state[4] / 0.3f;
        observation[5] = state[5] / 5.0f;
        observation[6] = state[6] / 12.0f;
        const float nothing = state[1] - state[1], brick = 1.0f + nothing;
        for (int r = 0; r < ROWS; r++) {
            const unsigned row = bricks(state[SCALARS + r]);
            for (int c = 0; c < COLUMNS; c++)
                observation[SCALARS + COLUMNS * r + c] = row >> c & 1u ? brick : nothing;
        }
    }
};
