// One step of N environments with same-step autoreset: where an episode ends, `final_observation` keeps what the step
// led to and `observation` is already the first of the next episode. Every step writes every element of every output.
//
// Continuous actions arrive raw and are clipped to the bounds. An action that is none (a choice outside
// [0, its number of actions), or NaN) is never used as an index: it makes the environment's state, observation and reward NaN
// until its time limit, so that it can neither do harm nor go unseen.

KERNEL env_step(float* __restrict__ state,                 // (LS_STATE, N)
                long long* __restrict__ episode_seed,      // (N)
                long long* __restrict__ episode_index,     // (N)
                int* __restrict__ episode_length,          // (N)
                float* __restrict__ episode_return,        // (N)
                const ActionElement* __restrict__ action,  // (N) or (N, ACTION_WIDTH)
#if !LS_DISCRETE
                const float* __restrict__ action_low,   // (LS_ACTIONS)
                const float* __restrict__ action_high,  // (LS_ACTIONS)
#endif
                float* __restrict__ observation,              // (N, LS_OBSERVATION)
                float* __restrict__ reward,                   // (N)
                unsigned char* __restrict__ terminated,       // (N)
                unsigned char* __restrict__ truncated,        // (N)
                float* __restrict__ final_observation,        // (N, LS_OBSERVATION)
                float* __restrict__ finished_episode_return,  // (N)
                int* __restrict__ finished_episode_length,    // (N)
                int N, int max_episode_steps, unsigned long long run_seed) {
    const float not_a_number = as_float(0x7fc00000u);
    const Range share = block_share(N / AGENTS);
#pragma GCC ivdep  // no environment meets another one's elements
    BLOCK_FOR(world, share.begin, share.end) {
        const int first = world * AGENTS;
        ActionElement a[AGENTS * ACTION_WIDTH];
        bool valid = true;
        IN_REGISTERS for (int k = 0; k < AGENTS * ACTION_WIDTH; k++) {
            const ActionElement raw = action[first * ACTION_WIDTH + k];
#if LS_DISCRETE
            const bool within = (unsigned)raw < (unsigned)choice_size(k % ACTION_WIDTH);
            a[k] = within ? raw : 0;
            valid = valid & within;
#else
            const float low = action_low[k % ACTION_WIDTH], high = action_high[k % ACTION_WIDTH];
            a[k] = blend(raw > low, raw, low);
            a[k] = blend(a[k] < high, a[k], high);
            valid = valid & (raw == raw);
#endif
        }

        float s[AGENTS * LS_STATE], o[LS_OBSERVATION], r[AGENTS];
        bool dead;
        IN_REGISTERS for (int agent = 0; agent < AGENTS; agent++)
            for (int k = 0; k < LS_STATE; k++) s[agent * LS_STATE + k] = state[k * N + first + agent];
        const int length = episode_length[first] + 1;
        const Draws draws{(unsigned long long)episode_seed[first], (unsigned)length, PURPOSE_DYNAMICS};
        step_world<Environment>(draws, a, s, r, dead);
        IN_REGISTERS for (int k = 0; k < AGENTS * LS_STATE; k++) s[k] = blend(valid, s[k], not_a_number);
        dead = dead & valid;
        IN_REGISTERS for (int agent = 0; agent < AGENTS; agent++) {
            const int n = first + agent;
            for (int k = 0; k < LS_STATE; k++) state[k * N + n] = s[agent * LS_STATE + k];
            const float earned = blend(valid, r[agent], not_a_number);
            const float total = episode_return[n] + earned;
            reward[n] = earned;
            terminated[n] = dead;
            truncated[n] = length >= max_episode_steps;
            finished_episode_return[n] = episode_return[n] = total;
            finished_episode_length[n] = episode_length[n] = length;
        }
        ROLLED for (int agent = 0; agent < AGENTS; agent++) {
            const int n = first + agent;
            observe_world<Environment>(s, agent, o);
            IN_REGISTERS for (int k = 0; k < LS_OBSERVATION; k++)
                observation[n * LS_OBSERVATION + k] = final_observation[n * LS_OBSERVATION + k] = o[k];
        }
    }

    // Apart from the steps, which so stay without a branch. A thread resets the environments that it stepped.
    BLOCK_FOR(world, share.begin, share.end) {
        const int first = world * AGENTS;
        if (!terminated[first] && !truncated[first]) continue;
        const unsigned long long episode = (unsigned long long)episode_index[first] + 1;
        const unsigned long long seed = training_episode_seed(run_seed, (unsigned)world, episode);
        for (int n = first; n < first + AGENTS; n++) {
            episode_index[n] = (long long)episode;
            episode_seed[n] = (long long)seed;
            episode_length[n] = 0;
            episode_return[n] = 0.0f;
        }
        begin_episode<Environment>(seed, first, N, state, observation);
    }
}
