// MountainCar-v0 (Moore 1990; constants and step of Gymnasium's MountainCar-v0), in float32.
//
// A car in a valley, too weak to climb the hill on the right at once, has to gain height on the left first.
//
// State and observation are the same two numbers:
//   0  position  kept within [-1.2, 0.6]; the valley's floor is at -pi / 6, the goal at 0.5
//   1  velocity  a step, kept within [-0.07, 0.07]; 0 after a blow against the wall at -1.2
// Parameters, which may be drawn for each episode (env.parameters): force and gravity, velocity gained in a step.
// Action: 0 pushes left, 1 not at all, 2 right.
// Reward: -1 for every step, the last one included.
// Start: position uniform in [-0.6, -0.4], velocity 0.
// End: terminated when the car is at 0.5 or beyond with no velocity to the left; truncated at the time limit (200
// steps), elsewhere.
#pragma once
#include "environment.cuh"

struct Environment {
    static_assert(LS_STATE == 2 + LS_PARAMETERS && LS_OBSERVATION == 2, "mountain_car: position and velocity");
    static_assert(LS_DISCRETE && LS_ACTIONS == 3, "mountain_car: three discrete actions");

    static DEVICE_MEMBER void reset(const Draws& draws, float* state) {
        state[0] = between(-0.6f, -0.4f, draws().word[0]);
        state[1] = 0.0f;
    }

    static DEVICE_MEMBER void step(const Draws&, const ActionElement* action, float* state, float& reward,
                                   bool& terminated) {
        const float force = PARAMETER(force, 0.001f), gravity = PARAMETER(gravity, 0.0025f);
        const float min_position = -1.2f, max_position = 0.6f, goal = 0.5f, max_speed = 0.07f;

        const float push = (float)(action[0] - 1) * force;
        const float faster = state[1] + (push - gravity * sincos_(3.0f * state[0]).cos);
        const float velocity = bounded(faster, -max_speed, max_speed);
        const float moved = state[0] + velocity;
        state[0] = bounded(moved, min_position, max_position);
        state[1] = blend((moved <= min_position) & (velocity < 0.0f), 0.0f, velocity);
        terminated = (moved >= goal) & (velocity >= 0.0f);
        reward = -1.0f;
    }

    static DEVICE_MEMBER void observe(const float* state, float* observation) {
        for (int k = 0; k < 2; k++) observation[k] = state[k];
    }
};
