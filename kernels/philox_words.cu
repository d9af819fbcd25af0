// Philox's four words for each counter.
#include "philox.cuh"

KERNEL philox_words(const int* counter,  // (N, 4), bit patterns of unsigned words
                    int* words,          // (N, 4)
                    int N, unsigned long long key) {
    const Range share = block_share(N);
    BLOCK_FOR(n, share.begin, share.end) {
        const int* c = counter + 4 * n;
        const Philox r = philox((unsigned)c[0], (unsigned)c[1], (unsigned)c[2], (unsigned)c[3], key);
        for (int k = 0; k < 4; k++) words[4 * n + k] = (int)r.word[k];
    }
}
