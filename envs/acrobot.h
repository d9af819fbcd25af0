// Acrobot-v1 (Sutton 1996; the book's equations, constants and Runge-Kutta step of Gymnasium's Acrobot-v1), in float32.
//
// Two links hang from a fixed joint; a torque on the joint between them is held for 0.2 s. The task is to swing the free
// end above a line one link's length over the fixed joint.
//
// State:
//   0  angle of the first link             rad    0 hangs down; kept within [-pi, pi] up to rounding
//   1  angle of the second to the first    rad    0 is straight; likewise
//   2  angular velocity of the first       rad/s  kept within [-4 pi, 4 pi]
//   3  angular velocity of the second      rad/s  kept within [-9 pi, 9 pi]
// Observation:
//   0, 1  cosine and sine of the first angle
//   2, 3  cosine and sine of the second angle
//   4, 5  both angular velocities          rad/s
// Action: 0, 1, 2 apply a torque of -1, 0, 1 N m.
// Reward: -1 for every step, 0 for the one that reaches the line.
// Start: all four uniform in [-0.1, 0.1].
// End: terminated when the free end is higher than 1 m above the joint; truncated at the time limit (500 steps),
// elsewhere.
#pragma once
#include "environment.cuh"

struct Environment {
    static_assert(LS_STATE == 4 && LS_OBSERVATION == 6, "acrobot: two angles and velocities; cosines and sines");
    static_assert(LS_DISCRETE && LS_ACTIONS == 3, "acrobot: three discrete actions");

    // Takes whole turns off an angle. 2 pi in two floats, so that turns add no drift.
    static DEVICE_MEMBER float wrap(float angle) {
        const float turn = 6.2831854820251465f, turn_rest = -1.7484555e-7f, per_turn = 0.159154943f;
        const float turns = fused_multiply_add(angle, per_turn, ROUNDING_MAGIC) - ROUNDING_MAGIC;
        return fused_multiply_add(-turns, turn_rest, fused_multiply_add(-turns, turn, angle));
    }

    static DEVICE_MEMBER float clamp(float value, float bound) {
        return value < -bound ? -bound : value > bound ? bound : value;
    }

    // Time derivative of the state. Sutton and Barto, "Reinforcement Learning", 1998, section 11.3.
    static DEVICE_MEMBER void derivative(const float* state, float torque, float* rate) {
        const float gravity = 9.8f;  // m/s^2
        const float mass = 1.0f;     // kg, of each link
        const float length = 1.0f;   // m, of the first link
        const float centre = 0.5f;   // m, from a link's joint to its centre of mass
        const float inertia = 1.0f;  // kg m^2, of each link

        const float v1 = state[2], v2 = state[3];
        const SinCos second = sincos_(state[1]);
        const float coupling = mass * length * centre;
        const float d1 = mass * centre * centre +
                         mass * (length * length + centre * centre + 2.0f * length * centre * second.cos) +
                         2.0f * inertia;
        const float d2 = mass * (centre * centre + length * centre * second.cos) + inertia;
        const float phi2 = mass * centre * gravity * sincos_(state[0] + state[1]).sin;
        const float phi1 = -coupling * (v2 * v2) * second.sin - 2.0f * coupling * v2 * v1 * second.sin +
                           (mass * centre + mass * length) * gravity * sincos_(state[0]).sin + phi2;
        const float push = torque + d2 / d1 * phi1 - coupling * (v1 * v1) * second.sin - phi2;
        rate[0] = v1;
        rate[1] = v2;
        rate[3] = push / (mass * centre * centre + inertia - d2 * d2 / d1);
        rate[2] = -(d2 * rate[3] + phi1) / d1;
    }

    static DEVICE_MEMBER void reset(const Draws& draws, float* state) {
        const Philox bits = draws();
        for (int k = 0; k < 4; k++) state[k] = between(-0.1f, 0.1f, bits.word[k]);
    }

    static DEVICE_MEMBER void step(const Draws&, const ActionElement* action, float* state, float& reward,
                                   bool& terminated) {
        const float dt = 0.2f;                             // s
        const float torque = (float)(action[0] - 1);       // N m
        const float max_speed[2] = {12.566371f, 28.274334f};  // rad/s

        float k1[4], k2[4], k3[4], k4[4], middle[4];
        derivative(state, torque, k1);
        for (int k = 0; k < 4; k++) middle[k] = state[k] + 0.5f * dt * k1[k];
        derivative(middle, torque, k2);
        for (int k = 0; k < 4; k++) middle[k] = state[k] + 0.5f * dt * k2[k];
        derivative(middle, torque, k3);
        for (int k = 0; k < 4; k++) middle[k] = state[k] + dt * k3[k];
        derivative(middle, torque, k4);
        for (int k = 0; k < 4; k++)
            state[k] = state[k] + dt / 6.0f * (k1[k] + 2.0f * k2[k] + 2.0f * k3[k] + k4[k]);

        for (int k = 0; k < 2; k++) {
            state[k] = wrap(state[k]);
            state[2 + k] = clamp(state[2 + k], max_speed[k]);
        }
        const float height = -sincos_(state[0]).cos - sincos_(state[1] + state[0]).cos;  // m
        terminated = height > 1.0f;
        reward = terminated ? 0.0f : -1.0f;
    }

    static DEVICE_MEMBER void observe(const float* state, float* observation) {
        for (int k = 0; k < 2; k++) {
            const SinCos angle = sincos_(state[k]);
            observation[2 * k] = angle.cos;
            observation[2 * k + 1] = angle.sin;
            observation[4 + k] = state[2 + k];
        }
    }
};
