// T steps of N environments under the MLP's policy, in one launch: forward, sample, step. A block plays a tile of whole
// worlds.
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
    const Range worlds = block_share(N / AGENTS), share{worlds.begin * AGENTS, worlds.end * AGENTS};
    const int rows = share.end - share.begin;
    load_observations(observation + (long long)T * N * D, share.begin, rows, tile);
    BLOCK_FOR(i, 0, rows * D) observation[share.begin * D + i] = tile[i];
    long long network = 0, environments = 0, last = ticks();
    for (int t = 0; t < T; t++) {
        forward<0>(packed, rows, tile);
        const long long answered = ticks();
        BLOCK_FOR(world, worlds.begin, worlds.end) {
            const int first = world * AGENTS;
            ActionElement played[AGENTS * ACTION_WIDTH];
            IN_REGISTERS for (int agent = 0; agent < AGENTS; agent++) {
                const int n = first + agent;
                const long long i = (long long)t * N + n;
                float parameters[PARAMETER_WIDTH];
                ActionElement drawn[ACTION_WIDTH];
                parameters_of(packed, tile + TILE_OUTPUT, n - share.begin, parameters);
                const Distribution<float> distribution(parameters);
                distribution.sample(drawn, (unsigned)n, (unsigned)(iteration[0] * T + t), run_seed);
                log_prob[i] = distribution.log_prob(drawn);
                entropy[i] = distribution.entropy();
                policy_version[i] = iteration[0];
                for (int k = 0; k < ACTION_WIDTH; k++) {
                    action[i * ACTION_WIDTH + k] = drawn[k];
#if LS_DISCRETE
                    played[agent * ACTION_WIDTH + k] = drawn[k];
#else
                    played[agent * ACTION_WIDTH + k] = clamp(drawn[k], action_low[k], action_high[k]);
#endif
                }
            }

            float s[AGENTS * LS_STATE], r[AGENTS];
            bool dead;
            IN_REGISTERS for (int agent = 0; agent < AGENTS; agent++)
                for (int k = 0; k < LS_STATE; k++) s[agent * LS_STATE + k] = state[k * N + first + agent];
            const int length = episode_length[first] + 1;
            step_world<Environment>(Draws{(unsigned long long)episode_seed[first], (unsigned)length, PURPOSE_DYNAMICS},
                                    played, s, r, dead);
            const bool cut = length >= max_episode_steps;
            IN_REGISTERS for (int agent = 0; agent < AGENTS; agent++) {
                const int n = first + agent;
                const long long i = (long long)t * N + n;
                for (int k = 0; k < LS_STATE; k++) state[k * N + n] = s[agent * LS_STATE + k];
                const float total = episode_return[n] + r[agent];
                reward[i] = r[agent];
                terminated[i] = dead;
                truncated[i] = cut;
                finished_episode_return[i] = episode_return[n] = total;
                finished_episode_length[i] = episode_length[n] = length;
            }
            ROLLED for (int agent = 0; agent < AGENTS; agent++) {
                const int n = first + agent;
                const long long i = (long long)t * N + n;
                float o[D];
                observe_world<Environment>(s, agent, o);
                for (int k = 0; k < D; k++) tile[(n - share.begin) * D + k] = o[k];
                if (cut && !dead)
                    for (int k = 0; k < D; k++) final_observation[i * D + k] = o[k];
            }
            if (cut || dead) {
                const unsigned long long episode = (unsigned long long)episode_index[first] + 1;
                const unsigned long long seed = training_episode_seed(run_seed, (unsigned)world, episode);
                float* next = observation + (long long)(t + 1) * N * D;
                begin_episode<Environment>(seed, first, N, state, next);
                for (int n = first; n < first + AGENTS; n++) {
                    episode_index[n] = (long long)episode;
                    episode_seed[n] = (long long)seed;
                    episode_length[n] = 0;
                    episode_return[n] = 0.0f;
                    for (int k = 0; k < D; k++) tile[(n - share.begin) * D + k] = next[n * D + k];
                }
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
