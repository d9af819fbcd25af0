// The seeds of training episodes in closed form.
#include "seeds.cuh"

KERNEL episode_seeds(const int* environment,    // (N)
                     const long long* episode,  // (N)
                     long long* seed,           // (N)
                     int N, unsigned long long run_seed) {
    const Range share = block_share(N);
    BLOCK_FOR(n, share.begin, share.end)
        seed[n] = (long long)training_episode_seed(run_seed, (unsigned)environment[n], (unsigned long long)episode[n]);
}
