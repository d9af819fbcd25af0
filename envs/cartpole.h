// CartPole-v1 (Barto, Sutton, Anderson 1983; constants and Euler step of Gymnasium's CartPole-v1), in float32.
//
// A pole hinged to a cart that moves on a frictionless track; every step pushes it by 10 N to one side for 0.02 s.
//
// State and observation are the same four numbers:
//   0  cart position          m      ends the episode outside [-2.4, 2.4]
//   1  cart velocity          m/s
//   2  pole angle             rad    0 is upright; ends the episode outside [-0.2094, 0.2094] (12 degrees)
//   3  pole angular velocity  rad/s
// Parameters, which may be drawn for each episode (env.parameters): gravity m/s^2, mass_cart and mass_pole kg,
// half_length m (of the pole), force N.
// Action: 0 pushes left, 1 pushes right.
// Reward: 1 for every step, the last one included.
// Start: all four uniform in [-0.05, 0.05].
// End: terminated when the cart left the track or the pole fell; truncated at the time limit (500 steps), elsewhere.
#pragma once
#include "environment.cuh"

struct Environment {
    static_assert(LS_STATE == 4 + LS_PARAMETERS, "cartpole: four numbers are the state, beside drawn parameters");
    static_assert(LS_OBSERVATION == 4 || LS_OBSERVATION == 2, "cartpole: all of them are observed, or both positions");
    static_assert(LS_DISCRETE && LS_ACTIONS == 2, "cartpole: two discrete actions");

    static DEVICE_MEMBER void reset(const Draws& draws, float* state) {
        const Philox bits = draws();
        for (int k = 0; k < 4; k++) state[k] = between(-0.05f, 0.05f, bits.word[k]);
    }

    static DEVICE_MEMBER void step(const Draws&, const ActionElement* action, float* state, float& reward,
                                   bool& terminated) {
        const float gravity = PARAMETER(gravity, 9.8f);          // m/s^2
        const float mass_cart = PARAMETER(mass_cart, 1.0f);      // kg
        const float mass_pole = PARAMETER(mass_pole, 0.1f);      // kg
        const float half_length = PARAMETER(half_length, 0.5f);  // m
        const float magnitude = PARAMETER(force, 10.0f);         // N
        const float total_mass = mass_cart + mass_pole;          // kg
        const float pole_mass_length = mass_pole * half_length;  // kg m
        const float tau = 0.02f;                                 // s
        const float x_threshold = 2.4f;                          // m
        const float theta_threshold = 0.20943951023931953f;      // rad

        const float force = action[0] == 1 ? magnitude : -magnitude;
        const float x = state[0], x_dot = state[1], theta = state[2], theta_dot = state[3];
        const SinCos angle = sincos_(theta);
        const float sin_theta = angle.sin, cos_theta = angle.cos;
        const float push = (force + pole_mass_length * (theta_dot * theta_dot) * sin_theta) / total_mass;
        const float inertia = half_length * (4.0f / 3.0f - mass_pole * (cos_theta * cos_theta) / total_mass);
        const float theta_acc = (gravity * sin_theta - cos_theta * push) / inertia;
        const float x_acc = push - pole_mass_length * theta_acc * cos_theta / total_mass;

        state[0] = x + tau * x_dot;
        state[1] = x_dot + tau * x_acc;
        state[2] = theta + tau * theta_dot;
        state[3] = theta_dot + tau * theta_acc;
        reward = 1.0f;
        const bool left_track = (state[0] < -x_threshold) | (state[0] > x_threshold);
        const bool fell = (state[2] < -theta_threshold) | (state[2] > theta_threshold);
        terminated = left_track | fell;
    }

    static DEVICE_MEMBER void observe(const float* state, float* observation) {
        for (int k = 0; k < LS_OBSERVATION; k++) observation[k] = state[4 / LS_OBSERVATION * k];
    }
};
