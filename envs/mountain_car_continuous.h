// MountainCarContinuous-v0 (constants and step of Gymnasium's MountainCarContinuous-v0), in float32.
//
// A car in a valley, too weak to climb the hill on the right at once, has to gain height on the left first, and pays for
// each push: one that never reaches the goal earns most by standing still.
//
// State and observation are the same two numbers:
//   0  position  kept within [-1.2, 0.6]; the valley's floor is at -pi / 6, the goal at 0.45
//   1  velocity  a step, kept within [-0.07, 0.07]; 0 after a blow against the wall at -1.2
// Action: force within [-1, 1]; 1 gains a velocity of 0.0015 in a step.
// Reward: -0.1 force^2, and 100 more on reaching the goal. The force is the clipped one (Gymnasium charges for the raw).
// Start: position uniform in [-0.6, -0.4], velocity 0.
// End: terminated when the car is at 0.45 or beyond with no velocity to the left; truncated at the time limit (999
// steps), elsewhere.
#pragma once
#include "environment.cuh"

struct Environment {
    static_assert(LS_STATE == 2 && LS_OBSERVATION == 2, "mountain_car_continuous: position and velocity");
    static_assert(!LS_DISCRETE && LS_ACTIONS == 1, "mountain_car_continuous: one force");

    static DEVICE_MEMBER void reset(const Draws& draws, float* state) {
        state[0] = between(-0.6f, -0.4f, draws().word[0]);
        state[1] = 0.0f;
    }

    static DEVICE_MEMBER void step(const Draws&, const ActionElement* action, float* state, float& reward,
                                   bool& terminated) {
        const float power = 0.0015f, gravity = 0.0025f;  // velocity gained in a step
        const float min_position = -1.2f, max_position = 0.6f, goal = 0.45f, max_speed = 0.07f;

        const float force = action[0];
        const float faster = state[1] + (force * power - gravity * sincos_(3.0f * state[0]).cos);
        const float velocity = bounded(faster, -max_speed, max_speed);
        const float moved = state[0] + velocity;
        state[0] = bounded(moved, min_position, max_position);
        state[1] = blend((moved <= min_position) & (velocity < 0.0f), 0.0f, velocity);
        terminated = (moved >= goal) & (velocity >= 0.0f);
        reward = blend(terminated, 100.0f, 0.0f) - 0.1f * (force * force);
    }

    static DEVICE_MEMBER void observe(const float* state, float* observation) {
        for (int k = 0; k < 2; k++) observation[k] = state[k];
    }
};
