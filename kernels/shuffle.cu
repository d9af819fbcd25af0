// A random permutation without memory: place i holds a keyed bijection of i (a Feistel network over the smallest power of
// two that holds n, walked along its cycle until it lands below n; Black and Rogaway, "Ciphers with arbitrary finite
// domains", 2002). Small halves mix slowly, so they get more rounds. Places are computed a vector at a time.
#include "seeds.cuh"

DEVICE uvec mixed(uvec x, unsigned key) {
    x = (x ^ key) * 0x9E3779B1u;
    x = (x ^ (x >> 15u)) * 0x85EBCA77u;
    x = (x ^ (x >> 13u)) * 0xC2B2AE3Du;
    return x ^ (x >> 16u);
}

constexpr int MAX_ROUNDS = 32;

KERNEL shuffle(int* index,            // (n)
               const int* iteration,  // (1)
               int n, unsigned epoch, unsigned long long run_seed) {
    int bits = 2;
    while ((1ll << bits) < n) bits++;
    const int rounds = 8 + 48 / bits < MAX_ROUNDS ? 8 + 48 / bits : MAX_ROUNDS;
    SHARED(unsigned, keys, MAX_ROUNDS);
    BLOCK_FOR(quad, 0, MAX_ROUNDS / 4) {
        const Philox r =
            philox(epoch * (MAX_ROUNDS / 4) + quad, (unsigned)iteration[0], PURPOSE_SHUFFLE, 0, run_seed);
        for (int word = 0; word < 4; word++) keys[quad * 4 + word] = r.word[word];
    }
    BARRIER();
    const Range share = block_share(n);
    BLOCK_FOR(v, 0, (share.end - share.begin + VECTOR - 1) / VECTOR) {
        const int first = share.begin + v * VECTOR;
        uvec x = counting((unsigned)first);
        ivec walking = as_int(x) >= 0;
        x = select(x >= (unsigned)n, x * 0u, x);  // beyond the end: any place, and it is not kept
        do {
            uvec y = x;
            int left_bits = bits / 2, right_bits = bits - left_bits;
            for (int round = 0; round < rounds; round++) {
                const uvec left = y >> (unsigned)right_bits, right = y & ((1u << right_bits) - 1u);
                const uvec changed = (left ^ mixed(right, keys[round])) & ((1u << left_bits) - 1u);
                y = (right << (unsigned)left_bits) | changed;
                const int swapped = left_bits;
                left_bits = right_bits;
                right_bits = swapped;
            }
            x = select(walking, y, x);
            walking = x >= (unsigned)n;
        } while (any(walking));
        if (first + VECTOR <= share.end)
            store_anywhere(index + first, x);
        else
            for (int l = 0; first + l < share.end; l++) index[first + l] = (int)lane(x, l);
    }
}
