// T steps of N environments under the MLP's policy, in one launch: forward, sample, step. A block plays a tile of them.
//
// Compiled behind an environment's header. What env_step.cu says of ends, resets and invalid actions holds here too; the
// final observation is written where a time limit cut an episode, and nowhere else.
#include "mlp.cuh"

KERNEL mlp_rollout(const float* packed,        // (K)
                   const int* iteration,       // (1)
                   float* state,               // (LS_STATE, N)
                   long long* episode_seed,    // (N)
                   long long* episode_index,   // (N)
                   int* episode_length,        // (N)
                   float* episode_return,      // (N)
#if !LS_DISCRETE
                   const float* action_low,   // (A)
                   const float* action_high,  // (A)
#endif
                   ActionElement* action,           // (T, N) or (T, N, ACTION_WIDTH)
                   float* observation,              // (T + 1, N, D); row 0 is taken from row T
                   float* log_prob,                 // (T, N)
                   float* entropy,                  // (T, N)
                   float* reward,                   // (T, N)
                   unsigned char* terminated,       // (T, N)
                   unsigned char* truncated,        // (T, N)
                   float* final_observation,        // (T, N, D)
                   float* finished_episode_return,  // (T, N)
                   int* finished_episode_length,    // (T, N)
                   int* policy_version,             // (T, N)
                   long long* spent,                // (tiles, 2): ticks in the network, in the environments
                   int K, int T, int N, int max_episode_steps, unsigned long long run_seed) {
    SHARED_TILE(tile, TILE_SIZE);
    const Range share = block_share(N);
    const int rows = share.end - share.begin;
    load_observations(observation + (long long)T * N * D, share.begin, rows, tile);
    BLOCK_FOR(i, 0, rows * D) observation[share.begin * D + i] = tile[i];
    long long network = 0, environments = 0, last = ticks();
    for (int t = 0; t < T; t++) {
        forward<0>(packed, rows, tile);
        const long long answered = ticks();
        BLOCK_FOR(s, 0, rows) {
            const int n = share.begin + s;
            const long long i = (long long)t * N + n;
            float parameters[PARAMETER_WIDTH];
            ActionElement drawn[ACTION_WIDTH], played[ACTION_WIDTH];
            parameters_of(packed, tile + TILE_OUTPUT, s, parameters);
            const Distribution<float> distribution(parameters);
            distribution.sample(drawn, (unsigned)n, (unsigned)(iteration[0] * T + t), run_seed);
            log_prob[i] = distribution.log_prob(drawn);
            entropy[i] = distribution.entropy();
            policy_version[i] = iteration[0];
            for (int k = 0; k < ACTION_WIDTH; k++) {
                action[i * ACTION_WIDTH + k] = drawn[k];
#if LS_DISCRETE
                played[k] = drawn[k];
#else
                played[k] = clamp(drawn[k], action_low[k], action_high[k]);
#endif
            }

            float s_[LS_STATE], o[D], r;
            bool dead;
            for (int k = 0; k < LS_STATE; k++) s_[k] = state[k * N + n];
            const int length = episode_length[n] + 1;
            Environment::step(Draws{(unsigned long long)episode_seed[n], (unsigned)length, PURPOSE_DYNAMICS}, played, s_, r,
                              dead);
            for (int k = 0; k < LS_STATE; k++) state[k * N + n] = s_[k];
            Environment::observe(s_, o);
            const bool cut = length >= max_episode_steps;
            const float total = episode_return[n] + r;
            reward[i] = r;
            terminated[i] = dead;
            truncated[i] = cut;
            finished_episode_return[i] = episode_return[n] = total;
            finished_episode_length[i] = episode_length[n] = length;
            for (int k = 0; k < D; k++) tile[s * D + k] = o[k];
            if (cut && !dead)
                for (int k = 0; k < D; k++) final_observation[i * D + k] = o[k];
            if (cut || dead) {
                const unsigned long long episode = (unsigned long long)episode_index[n] + 1;
                const unsigned long long seed = training_episode_seed(run_seed, (unsigned)n, episode);
                episode_index[n] = (long long)episode;
                episode_seed[n] = (long long)seed;
                episode_length[n] = 0;
                episode_return[n] = 0.0f;
                begin_episode<Environment>(seed, n, N, state, observation + (i - n + N) * D);
                for (int k = 0; k < D; k++) tile[s * D + k] = observation[(i + N) * D + k];
            }
        }
        BARRIER();
        BLOCK_FOR(i, 0, rows * D) observation[((long long)(t + 1) * N + share.begin) * D + i] = tile[i];
        network += answered - last;
        last = ticks();
        environments += last - answered;
    }
    BLOCK_FOR(only, 0, 1) {
        spent[2 * (int)blockIdx.x] = network;
        spent[2 * (int)blockIdx.x + 1] = environments;
    }
}
