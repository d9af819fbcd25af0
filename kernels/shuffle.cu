// A random permutation without memory: place i holds a keyed bijection of i (a Feistel network over the smallest power of
// two that holds n, walked along its cycle until it lands below n; Black and Rogaway, "Ciphers with arbitrary finite
// domains", 2002). Small halves mix slowly, so they get more rounds.
#include "seeds.cuh"

DEVICE unsigned mixed(unsigned x, unsigned key) {
    x = (x ^ key) * 0x9E3779B1u;
    x = (x ^ (x >> 15)) * 0x85EBCA77u;
    x = (x ^ (x >> 13)) * 0xC2B2AE3Du;
    return x ^ (x >> 16);
}

constexpr int MAX_ROUNDS = 32;

KERNEL shuffle(int* index,  // (n)
               int n, unsigned update, unsigned epoch, unsigned long long run_seed) {
    int bits = 2;
    while ((1ll << bits) < n) bits++;
    const int rounds = 8 + 48 / bits < MAX_ROUNDS ? 8 + 48 / bits : MAX_ROUNDS;
    unsigned keys[MAX_ROUNDS];
    for (int round = 0; round < MAX_ROUNDS; round += 4) {
        const Philox r = philox(epoch * (MAX_ROUNDS / 4) + round / 4, update, PURPOSE_SHUFFLE, 0, run_seed);
        for (int word = 0; word < 4; word++) keys[round + word] = r.word[word];
    }
    const Range share = block_share(n);
    BLOCK_FOR(i, share.begin, share.end) {
        unsigned x = (unsigned)i;
        do {
            int left_bits = bits / 2, right_bits = bits - left_bits;
            for (int round = 0; round < rounds; round++) {
                const unsigned left = x >> right_bits, right = x & ((1u << right_bits) - 1u);
                const unsigned changed = (left ^ mixed(right, keys[round])) & ((1u << left_bits) - 1u);
                x = (right << left_bits) | changed;
                const int swapped = left_bits;
                left_bits = right_bits;
                right_bits = swapped;
            }
        } while (x >= (unsigned)n);
        index[i] = (int)x;
    }
}
