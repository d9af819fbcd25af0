// Philox4x32-10: counter-based random numbers. Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011). A draw is a pure function of (counter, key): no state to save, none to collide.
#pragma once
#include "math.cuh"

struct Philox {
    unsigned word[4];
};

DEVICE Philox philox(unsigned c0, unsigned c1, unsigned c2, unsigned c3, unsigned long long key) {
    unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const unsigned high0 = multiply_high(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        const unsigned high1 = multiply_high(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return Philox{{c0, c1, c2, c3}};
}

// Uniform in [0, 1): 24 bits, exactly representable.
DEVICE float uniform(unsigned word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }

// Two independent standard normals from two words (Box and Muller, 1958). The radius' uniform is never 0.
struct NormalPair {
    float first, second;
};
DEVICE NormalPair normal_pair(unsigned a, unsigned b) {
    const float u = ((float)(a >> 8) + 0.5f) * (1.0f / 16777216.0f);
    const float radius = square_root(-2.0f * log_(u));
    const SinCos angle = sincos_(6.28318530718f * uniform(b));
    return NormalPair{radius * angle.cos, radius * angle.sin};
}

// Four independent standard normals from one Philox block.
struct Normals {
    float value[4];
};
DEVICE Normals normals(Philox r) {
    const NormalPair a = normal_pair(r.word[0], r.word[1]), b = normal_pair(r.word[2], r.word[3]);
    return Normals{{a.first, a.second, b.first, b.second}};
}
