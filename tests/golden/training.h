// A short training on the fast path, from the kernels' own sources and without Python: the loop of pipeline/ppo.py and
// pipeline/fused.py around the kernels, a kernel's blocks one after the other.
//
// Compiled behind a run's constants (cartpole.cpp, pendulum.cpp), which hold the hashes that it has to end in.
#pragma once
#include "../../kernels/adam.cu"
#include "../../kernels/advantage_shift.cu"
#include "../../kernels/env_reset.cu"
#include "../../kernels/episode_seeds.cu"
#include "../../kernels/gae.cu"
#include "../../kernels/global_norm.cu"
#include "../../kernels/mlp_forward.cu"
#include "../../kernels/mlp_gradient.cu"
#include "../../kernels/mlp_pack.cu"
#include "../../kernels/mlp_reduce.cu"
#include "../../kernels/mlp_rollout.cu"
#include "../../kernels/orthogonal.cu"
#include "../../kernels/shuffle.cu"
#include "report.h"

constexpr int ANY = 3;  // blocks of a kernel whose result does not depend on their number

template <class Body>
static void launch(int blocks, Body body) {
    gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) body();
}

struct Training {
    static constexpr int N = NUM_ENVS, T = NUM_STEPS, M = T * N, MINIBATCH = M / NUM_MINIBATCHES;
    static constexpr int P = PARTITIONS, Q = GRADIENT_SIZE, R = REDUCTION_BLOCKS, n = PARAMETERS, K = PACKED_SIZE;

    // The network and its optimizer.
    alignas(64) float parameters[n], gradient[n], first_moment[n], second_moment[n];
    alignas(64) float packed[K], partials[P * Q], sums[Q];
    float squares[R], norm, scale, metrics[METRICS], schedule[3];
    double power1, power2;
    // The environments.
    float state[LS_STATE * N], episode_return[N];
    long long episode_seed[N], episode_index[N];
    int environment[N], episode_length[N];
    // A rollout.
    int iteration, policy_version[M], finished_episode_length[M], order[M];
    ActionElement action[M * ACTION_WIDTH];
    float observation[(M + N) * D], final_observation[M * D], value[M + N], final_value[M];
    float log_prob[M], entropy[M], reward[M], finished_episode_return[M], advantage[M], returns[M];
    float shifts[NUM_MINIBATCHES * 2];
    unsigned char terminated[M], truncated[M];
    long long spent[ANY * 2];

    // pipeline/policy.py, initialize: biases are zero.
    void initialize() {
        int piece = 0;
        const auto layer = [&](int inputs, int outputs, double gain) {
            launch(1, [&] { orthogonal(parameters + flat_offset(piece), inputs, outputs, (float)gain, piece, SEED); });
            piece++;
        };
        for (int tower = 0; tower < TOWERS; tower++) {
            for (int l = 0; l < DEPTH; l++) layer(inputs(l), hidden(l), 1.4142135623730951);
            if (acts(tower)) layer(LAST, ACTOR, 0.01);
            if (values(tower)) layer(LAST, 1, 1.0);
        }
#if !LS_DISCRETE
        for (int d = 0; d < ACTION_WIDTH; d++) parameters[flat_log_std() + d] = (float)LOG_STD_INIT;
#endif
    }

    void reset() {
        for (int i = 0; i < N; i++) environment[i] = i;
        launch(ANY, [&] { episode_seeds(environment, episode_index, episode_seed, N, SEED); });
        launch(ANY, [&] {
            env_reset(episode_seed, state, episode_index, episode_length, episode_return, observation + M * D, N);
        });
        power1 = power2 = 1.0;
    }

    void iterate() {
        collect();
        advantages();
        update();
        iteration++;
    }

    void collect() {
        pack();
        launch(ANY, [&] {
            mlp_rollout(packed, &iteration, state, episode_seed, episode_index, episode_length, episode_return,
#if !LS_DISCRETE
                        ACTION_LOW, ACTION_HIGH,
#endif
                        action, observation, log_prob, entropy, reward, terminated, truncated, final_observation,
                        finished_episode_return, finished_episode_length, policy_version, spent, K, T, N,
                        MAX_EPISODE_STEPS, SEED);
        });
    }

    void advantages() {
        launch(ANY, [&] { mlp_values(packed, observation, value, K, M + N); });
        launch(ANY, [&] { mlp_final_values(packed, final_observation, terminated, truncated, final_value, K, M); });
        launch(ANY, [&] {
            gae(reward, value, final_value, terminated, truncated, advantage, returns, T, N, (float)GAMMA,
                (float)GAE_LAMBDA);
        });
    }

    void update() {
        for (int epoch = 0; epoch < UPDATE_EPOCHS; epoch++) {
            launch(ANY, [&] { shuffle(order, &iteration, M, epoch, SEED); });
            launch(NUM_MINIBATCHES, [&] { advantage_shift(advantage, order, shifts, MINIBATCH); });
            for (int minibatch = 0; minibatch < NUM_MINIBATCHES; minibatch++)
                step(order + minibatch * MINIBATCH, shifts + minibatch * 2);
        }
    }

    void step(const int* index, const float* shift) {
        launch(P * TOWERS, [&] {
            mlp_gradient(packed, observation, index, action, log_prob, advantage, returns, shift, partials, MINIBATCH, P,
                         Q, (float)CLIP_COEF, (float)ENT_COEF, (float)VF_COEF);
        });
        launch(R, [&] { mlp_reduce(partials, parameters, sums, gradient, squares, metrics, P, Q, n, R, MINIBATCH); });
        launch(1, [&] { clip_scale(squares, &norm, &scale, R, (float)MAX_GRAD_NORM); });
        power1 *= BETA1;
        power2 *= BETA2;
        schedule[0] = (float)(ANNEAL_LR ? LEARNING_RATE * (1.0 - (double)iteration / ITERATIONS) : LEARNING_RATE);
        schedule[1] = (float)(1.0 - power1);
        schedule[2] = (float)(1.0 - power2);
        launch(ANY, [&] {
            adam(parameters, gradient, &scale, first_moment, second_moment, schedule, n, (float)BETA1, (float)BETA2,
                 (float)EPSILON);
        });
        pack();
    }

    void pack() {
        launch(ANY, [&] { mlp_pack(parameters, packed, n, K); });
    }

    Sha256 hash() const {
        Sha256 sha;
        for (float parameter : parameters) sha.word(as_bits(parameter));
        return sha;
    }
};

static Training training;  // all zero, as new tensors are

int main() {
    training.initialize();
    const bool first = report(RUN ", initial parameters", training.hash(), INITIAL_PARAMS_SHA256);
    training.reset();
    while (training.iteration < ITERATIONS) training.iterate();
    const bool last = report(RUN ", trained parameters", training.hash(), PARAMS_SHA256);
    return first && last ? 0 : 1;
}
