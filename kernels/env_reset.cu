// Begins the episode of the given seed in every environment.

KERNEL env_reset(const long long* episode_seed,  // (N)
                 float* state,                   // (LS_STATE, N)
                 long long* episode_index,       // (N)
                 int* episode_length,            // (N)
                 float* episode_return,          // (N)
                 float* observation,             // (N, LS_OBSERVATION)
                 int N) {
    const Range share = block_share(N);
    BLOCK_FOR(n, share.begin, share.end) {
        begin_episode<Environment>((unsigned long long)episode_seed[n], n, N, state, observation);
        episode_index[n] = 0;
        episode_length[n] = 0;
        episode_return[n] = 0.0f;
    }
}
