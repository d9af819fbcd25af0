// Pendulum-v1 (constants and semi-implicit Euler step of Gymnasium's Pendulum-v1), in float32.
//
// A rod hangs from a fixed joint; a torque, too weak to lift it at once, is applied for 0.05 s a step.
//
// State:
//   0  angle             rad    0 is upright, positive is counter-clockwise; kept within [-pi, pi] (not by Gymnasium)
//   1  angular velocity  rad/s  kept within [-8, 8]
// Parameters, which may be drawn for each episode (env.parameters): gravity m/s^2, mass kg, length m (of the rod).
// Observation:
//   0  cos(angle)
//   1  sin(angle)
//   2  angular velocity  rad/s
// Action: torque in N m within [-2, 2].
// Reward: -(angle^2 + 0.1 velocity^2 + 0.001 torque^2), of the state that the step starts from; -16.2736044 to 0.
// Start: angle uniform in [-pi, pi], velocity uniform in [-1, 1].
// End: never terminated; truncated at the time limit (200 steps), elsewhere.
#pragma once
#include "environment.cuh"

struct Environment {
    static_assert(LS_STATE == 2 + LS_PARAMETERS && LS_OBSERVATION == 3, "pendulum: angle, velocity");
    static_assert(!LS_DISCRETE && LS_ACTIONS == 1, "pendulum: one torque");

    static constexpr float pi = 3.14159265358979f;

    // Brings an angle that has left [-pi, pi] by less than a turn back. 2 pi in two floats, so that turns add no drift.
    static DEVICE_MEMBER float wrap(float angle) {
        const float turn = 6.2831854820251465f, turn_rest = -1.7484555e-7f;
        if (angle > pi) return (angle - turn) - turn_rest;
        if (angle < -pi) return (angle + turn) + turn_rest;
        return angle;
    }

    static DEVICE_MEMBER void reset(const Draws& draws, float* state) {
        const Philox bits = draws();
        state[0] = between(-pi, pi, bits.word[0]);
        state[1] = between(-1.0f, 1.0f, bits.word[1]);
    }

    static DEVICE_MEMBER void step(const Draws&, const ActionElement* action, float* state, float& reward,
                                   bool& terminated) {
        const float gravity = PARAMETER(gravity, 10.0f);  // m/s^2
        const float mass = PARAMETER(mass, 1.0f);         // kg
        const float length = PARAMETER(length, 1.0f);     // m
        const float dt = 0.05f;                           // s
        const float max_speed = 8.0f;                     // rad/s

        const float angle = state[0], speed = state[1], torque = action[0];
        reward = -(angle * angle + 0.1f * (speed * speed) + 0.001f * (torque * torque));
        const float inertia = mass * length * length / 3.0f;  // kg m^2
        const float weight = mass * gravity * length / 2.0f;  // N m, of the rod held level
        const float acceleration = (weight * sincos_(angle).sin + torque) / inertia;
        const float faster = speed + acceleration * dt;
        state[1] = faster < -max_speed ? -max_speed : faster > max_speed ? max_speed : faster;
        state[0] = wrap(angle + state[1] * dt);
        terminated = false;
    }

    static DEVICE_MEMBER void observe(const float* state, float* observation) {
        const SinCos angle = sincos_(state[0]);
        observation[0] = angle.cos;
        observation[1] = angle.sin;
        observation[2] = state[1];
    }
};
