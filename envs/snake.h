// Snake for four: each snake is an agent and a row, all four share one board and its food, in float32.
//
// The board has 11 x 11 cells, x to the right and y upward, both 0 to 10; beyond lies wall. Directions: 0 right, 1 up, 2 left,
// 3 down. There are four pieces of food; any snake may eat any of them.
//
// State of a row, its snake and one piece of food:
//   0  x         cells, the head
//   1  y         cells
//   2  segments  of the body behind the head, 1 to 11
//   3  body      bits 2 k and 2 k + 1 of the integer are the direction from piece k to piece k + 1, the head is piece 0
//   4  food x    cells
//   5  food y    cells
// Observation of an agent, turned so that its head looks forward:
//   0..23  1 where a cell is wall or some snake's, else 0: 5 x 5 cells, row by row from the one behind the head to the third
//          ahead, each from the second on the right to the second on the left, without the head's own
//   24     the nearest food (of |x| + |y|; of several the first row's): cells ahead, / 10
//   25     the same: cells to the left, / 10
//   26     segments / 11
// Action: 0 goes straight on, 1 turns left, 2 turns right; then the head moves by one cell.
// Reward of an agent: 1 for eating, -1 for bumping, 0 elsewhere.
//
// A step moves all heads at once. A snake whose head comes upon food grows by a segment, up to 11; the others' tails move
// on. Then a snake bumps whose head is in a wall, on a segment of any snake, or where another head is. Who bumps is off the
// board with all segments, and is born again in the same step: a head and one segment on free cells, any direction. Food that
// a snake ate which did not bump is placed anew on a free cell. Births come first, both in the order of the rows.
// Start: four births, then four pieces of food.
// End: truncated at the time limit (256 steps), elsewhere, for all four at once; never terminated.
// Version: 0.
#pragma once
#include "environment.cuh"

struct Environment {
    typedef unsigned long long Cells;
    static constexpr int SIZE = 11, LONGEST = 11, OFF = 99, ROWS = 5, COLUMNS = 5, OWN = 7;
    static_assert(LS_STATE == 6 && LS_AGENTS == 4, "snake: head, body and food of each of four");
    static_assert(LS_OBSERVATION == ROWS * COLUMNS - 1 + 3, "snake: a window, the way to the food, the length");
    static_assert(LS_DISCRETE && LS_ACTIONS == 3, "snake: three discrete actions");

    static DEVICE_MEMBER int to_x(unsigned direction) { return direction == 0 ? 1 : direction == 2 ? -1 : 0; }
    static DEVICE_MEMBER int to_y(unsigned direction) { return direction == 1 ? 1 : direction == 3 ? -1 : 0; }
    static DEVICE_MEMBER bool on_board(int x, int y) { return (unsigned)x < (unsigned)SIZE && (unsigned)y < (unsigned)SIZE; }

    // Cells of the board, a bit each.
    struct Board {
        Cells low, high;

        DEVICE_MEMBER bool has(int x, int y) const {
            const int cell = x + SIZE * y;
            return on_board(x, y) && ((cell < 64 ? low : high) >> (cell & 63) & 1u);
        }
        DEVICE_MEMBER void add(int x, int y) {
            const int cell = x + SIZE * y;
            const Cells bit = on_board(x, y) ? 1ull << (cell & 63) : 0;
            low |= cell < 64 ? bit : 0;
            high |= cell < 64 ? 0 : bit;
        }
    };

    struct Snake {
        int x, y;
        unsigned segments, body;

        DEVICE_MEMBER unsigned heading() const { return (body & 3u) ^ 2u; }
        DEVICE_MEMBER void add_segments_to(Board& board) const {
            int piece_x = x, piece_y = y;
            unsigned rest = body;
            ROLLED for (unsigned k = 0; k < segments; k++, rest >>= 2) {
                piece_x += to_x(rest & 3u);
                piece_y += to_y(rest & 3u);
                board.add(piece_x, piece_y);
            }
        }
    };
    struct Food {
        int x, y;
    };
    // Which one is told at run time by comparing, so that the arrays stay in registers.
    struct World {
        Snake snake[AGENTS];
        Food food[AGENTS];

        DEVICE_MEMBER Snake snake_of(int agent) const {
            Snake found = snake[0];
            IN_REGISTERS for (int k = 1; k < AGENTS; k++)
                if (k == agent) found = snake[k];
            return found;
        }
        DEVICE_MEMBER Food piece(int number) const {
            Food found = food[0];
            IN_REGISTERS for (int k = 1; k < AGENTS; k++)
                if (k == number) found = food[k];
            return found;
        }
    };

    static DEVICE_MEMBER int coordinate(float value) {
        const unsigned cells = natural(value);
        return cells < (unsigned)SIZE ? (int)cells : OFF;
    }
    static DEVICE_MEMBER World world_of(const float* state) {
        World world;
        IN_REGISTERS for (int agent = 0; agent < AGENTS; agent++) {
            const float* s = state + agent * LS_STATE;
            const unsigned segments = natural(s[2]);
            const unsigned most = segments < (unsigned)LONGEST ? segments : (unsigned)LONGEST;
            world.snake[agent] = Snake{coordinate(s[0]), coordinate(s[1]), most, natural(s[3])};
            world.food[agent] = Food{coordinate(s[4]), coordinate(s[5])};
        }
        return world;
    }
    static DEVICE_MEMBER void keep(const World& world, float nothing, float* state) {
        IN_REGISTERS for (int agent = 0; agent < AGENTS; agent++) {
            float* s = state + agent * LS_STATE;
            s[0] = nothing + (float)world.snake[agent].x;
            s[1] = nothing + (float)world.snake[agent].y;
            s[2] = nothing + (float)(int)world.snake[agent].segments;
            s[3] = nothing + (float)(int)world.snake[agent].body;
            s[4] = nothing + (float)world.food[agent].x;
            s[5] = nothing + (float)world.food[agent].y;
        }
    }

    // Snakes and food that are off the board come upon it.
    static DEVICE_MEMBER void place(const Draws& draws, World& world) {
        Board taken{0, 0};
        ROLLED for (int agent = 0; agent < AGENTS; agent++) {
            const Snake snake = world.snake_of(agent);
            const Food food = world.piece(agent);
            taken.add(snake.x, snake.y);
            snake.add_segments_to(taken);
            taken.add(food.x, food.y);
        }
        ROLLED for (int agent = 0; agent < AGENTS; agent++) {
            Snake snake = world.snake_of(agent);
            for (unsigned trial = 0; !on_board(snake.x, snake.y); trial++) {
                const Philox bits = draws(2 * (AGENTS * trial + agent));
                const int x = (int)choice(SIZE, bits.word[0]), y = (int)choice(SIZE, bits.word[1]);
                const unsigned back = bits.word[2] >> 30;
                const int back_x = x + to_x(back), back_y = y + to_y(back);
                if (taken.has(x, y) || taken.has(back_x, back_y) || !on_board(back_x, back_y)) continue;
                snake = Snake{x, y, 1, back};
                taken.add(x, y);
                taken.add(back_x, back_y);
            }
            IN_REGISTERS for (int k = 0; k < AGENTS; k++)
                if (k == agent) world.snake[k] = snake;
        }
        ROLLED for (int piece = 0; piece < AGENTS; piece++) {
            Food food = world.piece(piece);
            for (unsigned trial = 0; !on_board(food.x, food.y); trial++) {
                const Philox bits = draws(2 * (AGENTS * trial + piece) + 1);
                const int x = (int)choice(SIZE, bits.word[0]), y = (int)choice(SIZE, bits.word[1]);
                if (taken.has(x, y)) continue;
                food = Food{x, y};
                taken.add(x, y);
            }
            IN_REGISTERS for (int k = 0; k < AGENTS; k++)
                if (k == piece) world.food[k] = food;
        }
    }

    static DEVICE_MEMBER void reset(const Draws& draws, float* state) {
        World world;
        IN_REGISTERS for (int agent = 0; agent < AGENTS; agent++) {
            world.snake[agent] = Snake{OFF, OFF, 0, 0};
            world.food[agent] = Food{OFF, OFF};
        }
        place(draws, world);
        keep(world, 0.0f, state);
    }

    static DEVICE_MEMBER void step(const Draws& draws, const ActionElement* action, float* state, float* reward,
                                   bool& terminated) {
        const float nothing = state[0] - state[0];  // 0; NaN in a state that is none
        World world = world_of(state);
        Board segments{0, 0};
        IN_REGISTERS for (int agent = 0; agent < AGENTS; agent++) {
            Snake& snake = world.snake[agent];
            const unsigned turn = action[agent] == 1 ? 1u : action[agent] == 2 ? 3u : 0u;
            const unsigned heading = (snake.heading() + turn) & 3u;
            snake.x += to_x(heading);
            snake.y += to_y(heading);
            bool ate = false;
            IN_REGISTERS for (int piece = 0; piece < AGENTS; piece++)
                ate = ate || (world.food[piece].x == snake.x && world.food[piece].y == snake.y);
            reward[agent] = ate ? 1.0f : 0.0f;
            snake.segments += ate && snake.segments < (unsigned)LONGEST ? 1u : 0u;
            snake.body = (snake.body << 2 | (heading ^ 2u)) & ((1u << 2 * snake.segments) - 1u);
        }
        ROLLED for (int agent = 0; agent < AGENTS; agent++) world.snake_of(agent).add_segments_to(segments);
        IN_REGISTERS for (int agent = 0; agent < AGENTS; agent++) {
            const Snake& snake = world.snake[agent];
            bool bumped = !on_board(snake.x, snake.y) || segments.has(snake.x, snake.y);
            IN_REGISTERS for (int other = 0; other < AGENTS; other++)
                bumped = bumped || (other != agent && world.snake[other].x == snake.x && world.snake[other].y == snake.y);
            reward[agent] = bumped ? -1.0f : reward[agent];
        }
        IN_REGISTERS for (int agent = 0; agent < AGENTS; agent++) {
            Snake& snake = world.snake[agent];
            IN_REGISTERS for (int piece = 0; piece < AGENTS; piece++) {
                Food& food = world.food[piece];
                if (reward[agent] > 0.0f && food.x == snake.x && food.y == snake.y) food = Food{OFF, OFF};
            }
            if (reward[agent] < 0.0f) snake = Snake{OFF, OFF, 0, 0};
            reward[agent] += nothing;
        }
        place(draws, world);
        keep(world, nothing, state);
        terminated = false;
    }

    static DEVICE_MEMBER void observe(const float* state, int agent, float* observation) {
        const float nothing = state[0] - state[0], wall = 1.0f + nothing;
        const World world = world_of(state);
        Board taken{0, 0};
        ROLLED for (int other = 0; other < AGENTS; other++) {
            const Snake snake = world.snake_of(other);
            taken.add(snake.x, snake.y);
            snake.add_segments_to(taken);
        }
        const Snake snake = world.snake_of(agent);
        const unsigned heading = snake.heading();
        const int ahead_x = to_x(heading), ahead_y = to_y(heading);
        IN_REGISTERS for (int row = 0; row < ROWS; row++) {
            IN_REGISTERS for (int column = 0; column < COLUMNS; column++) {
                const int k = COLUMNS * row + column, ahead = row - 1, left = column - 2;
                const int x = snake.x + ahead * ahead_x - left * ahead_y, y = snake.y + ahead * ahead_y + left * ahead_x;
                const bool blocked = !on_board(x, y) || taken.has(x, y);
                if (k != OWN) observation[k < OWN ? k : k - 1] = blocked ? wall : nothing;
            }
        }
        int nearest = 2 * OFF, ahead = 0, left = 0;
        IN_REGISTERS for (int piece = 0; piece < AGENTS; piece++) {
            const int x = world.food[piece].x - snake.x, y = world.food[piece].y - snake.y;
            const int steps = (x < 0 ? -x : x) + (y < 0 ? -y : y);
            if (steps < nearest) {
                nearest = steps;
                ahead = x * ahead_x + y * ahead_y;
                left = y * ahead_x - x * ahead_y;
            }
        }
        observation[24] = nothing + (float)ahead / 10.0f;
        observation[25] = nothing + (float)left / 10.0f;
        observation[26] = nothing + (float)(int)snake.segments / 11.0f;
    }
};
