// Begins the episode of the given seed in every environment; the rows of a world are given the same seed.

KERNEL env_reset(const long long* episode_seed,  // (N)
                 float* state,                   // (LS_STATE, N)
                 long long* episode_index,       // (N)
                 int* episode_length,            // (N)
                 float* episode_return,          // (N)
                 float* observation,             // (N, LS_OBSERVATION)
                 int N) {
    const Range share = block_share(N / AGENTS);
    BLOCK_FOR(world, share.begin, share.end) {
        const int first = world * AGENTS;
        begin_episode<Environment>((unsigned long long)episode_seed[first], first, N, state, observation);
        for (int n = first; n < first + AGENTS; n++) {
            episode_index[n] = 0;
            episode_length[n] = 0;
            episode_return[n] = 0.0f;
        }
    }
}
