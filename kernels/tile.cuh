// Products of matrices in registers: one body for host and GPU. Each element of a result is one chain of fused multiply
// and adds over the inner index, in order, so no bit depends on the vector's width, the tile's shape or the block's size.
#pragma once
#include "vector.cuh"

constexpr int LINE = 16;  // floats of a cache line: rows are padded to it, whatever the vector's width
DEVICE constexpr int padded(int n) { return (n + LINE - 1) / LINE * LINE; }

// A register tile: rows times vectors. It fills most of the registers and has chains enough to hide an addition's latency.
#if defined(__AVX512F__) && LS_VECTOR == 16
constexpr int TILE_ROWS = 8, TILE_VECTORS = 2;
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(LS_EMULATE)
constexpr int TILE_ROWS = 8, TILE_VECTORS = 1;
#else
constexpr int TILE_ROWS = 6, TILE_VECTORS = 2;
#endif

// The left factor of a product, element (m, k): a matrix as it lies, or its transpose.
struct Rows {
    const float* x;
    int stride;
    DEVICE_MEMBER float operator()(int m, int k) const { return x[m * stride + k]; }
};
struct Columns {
    const float* x;
    int stride;
    DEVICE_MEMBER float operator()(int m, int k) const { return x[k * stride + m]; }
};

// The right factor, element (k, n): `at(0, n)` is followed by those of the next k, `step` floats apart. Matrix: rows as
// they lie. Panels: LINE columns after the other, each panel K rows of them, so that what a tile reads lies together
// (rows a large power of two apart share a few sets of the cache).
struct Matrix {
    const float* x;
    int step;
    DEVICE_MEMBER const float* at(int n) const { return x + n; }
};
template <int K>
struct Panels {
    const float* x;
    static constexpr int step = LINE;
    DEVICE_MEMBER const float* at(int n) const { return x + n / LINE * (K * LINE) + n % LINE; }
};

template <int ROWS, int VECTORS, class Left, class Right, class Init, class Out>
DEVICE_MEMBER void register_tile(int m, int n, int K, Left left, Right right, Init init, Out out) {
    vec sum[ROWS][VECTORS];
    const float* column[VECTORS];
    UNROLL for (int v = 0; v < VECTORS; v++) column[v] = right.at(n + v * VECTOR);
    UNROLL for (int r = 0; r < ROWS; r++)
        UNROLL for (int v = 0; v < VECTORS; v++) sum[r][v] = init(m + r, n + v * VECTOR);
    UNROLL_TWICE for (int k = 0; k < K; k++) {
        vec x[VECTORS];
        UNROLL for (int v = 0; v < VECTORS; v++) x[v] = load(column[v] + k * right.step);
        UNROLL for (int r = 0; r < ROWS; r++) {
            const vec w = splat(left(m + r, k));
            UNROLL for (int v = 0; v < VECTORS; v++) sum[r][v] = fused_multiply_add(w, x[v], sum[r][v]);
        }
    }
    UNROLL for (int r = 0; r < ROWS; r++)
        UNROLL for (int v = 0; v < VECTORS; v++) out(m + r, n + v * VECTOR, sum[r][v]);
}

// How many vectors wide a tile of N columns is: the largest number up to `wanted` that divides them.
template <int N>
DEVICE_MEMBER constexpr int tile_vectors(int wanted) {
    int vectors = 1;
    for (int v = 1; v <= wanted; v++) vectors = N / VECTOR % v ? vectors : v;
    return vectors;
}

// Rows [begin, begin + ROWS * groups) of a product, column tile by column tile.
template <int ROWS, int N, int VECTORS, class Left, class Right, class Init, class Out>
DEVICE_MEMBER void product_rows(int begin, int groups, int K, Left left, Right right, Init init, Out out) {
    constexpr int ACROSS = N / (VECTOR * VECTORS);
    // A host's core keeps the columns and walks down; a GPU's neighbouring threads read neighbouring columns.
    BLOCK_FOR(t, 0, groups * ACROSS) {
        const int row = ON_DEVICE ? t / ACROSS : t % groups, column = ON_DEVICE ? t % ACROSS : t / groups;
        register_tile<ROWS, VECTORS>(begin + row * ROWS, column * VECTORS * VECTOR, K, left, right, init, out);
    }
}

// out(m, n, init(m, n) + sum over k < K of left(m, k) * right(k, n)) for m < M and n < N, a vector at a time. N is a
// multiple of LINE, the right factor's rows lie on cache lines.
template <int N, class Left, class Right, class Init, class Out>
DEVICE_MEMBER void tile_product(int M, int K, Left left, Right right, Init init, Out out) {
    constexpr int V = tile_vectors<N>(TILE_VECTORS);
    const int groups = M / TILE_ROWS, rest = M % TILE_ROWS;
    product_rows<TILE_ROWS, N, V>(0, groups, K, left, right, init, out);
    int m = groups * TILE_ROWS;
    if constexpr (ON_DEVICE) {  // the last rows: shared by as many threads as can be
        product_rows<1, N, 1>(m, rest, K, left, right, init, out);
    } else {  // the last rows: lower tiles are wider, for as many chains
        if (rest & 4) product_rows<4, N, V>(m, 1, K, left, right, init, out);
        m += rest & 4;
        if (rest & 2) product_rows<2, N, tile_vectors<N>(2 * TILE_VECTORS)>(m, 1, K, left, right, init, out);
        m += rest & 2;
        if (rest & 1) product_rows<1, N, tile_vectors<N>(4 * TILE_VECTORS)>(m, 1, K, left, right, init, out);
    }
}

// The same where the number of rows is known at run time only: rows beyond M, up to an even number, come out too. Two
// shapes of tile in the place of four, which matters to who compiles it.
template <int N, class Left, class Right, class Init, class Out>
DEVICE_MEMBER void tile_product_even(int M, int K, Left left, Right right, Init init, Out out) {
    const int groups = M / TILE_ROWS, rest = M - groups * TILE_ROWS;
    product_rows<TILE_ROWS, N, tile_vectors<N>(TILE_VECTORS)>(0, groups, K, left, right, init, out);
    product_rows<2, N, tile_vectors<N>(2 * TILE_VECTORS)>(groups * TILE_ROWS, (rest + 1) / 2, K, left, right, init, out);
}

// out(n, init(n) + sum over k < K of right[k * stride + n]) for n < N: a row of ones times the matrix.
template <int N, class Init, class Out>
DEVICE_MEMBER void tile_sum(int K, const float* right, int stride, Init init, Out out) {
    constexpr int V = tile_vectors<N>(8);
    BLOCK_FOR(panel, 0, N / (VECTOR * V)) {
        vec sum[V];
        const int n = panel * V * VECTOR;
        UNROLL for (int v = 0; v < V; v++) sum[v] = init(n + v * VECTOR);
        for (int k = 0; k < K; k++)
            UNROLL for (int v = 0; v < V; v++) sum[v] = sum[v] + load(right + k * stride + n + v * VECTOR);
        UNROLL for (int v = 0; v < V; v++) out(n + v * VECTOR, sum[v]);
    }
}

// y[c][r] = x[r][c] for r < R and c < C, multiples of LINE.
template <int R, int C>
DEVICE_MEMBER void tile_transpose(const float* x, int x_stride, float* y, int y_stride) {
    constexpr int ACROSS = C / VECTOR;
    BLOCK_FOR(t, 0, R / VECTOR * ACROSS) {
        const int r = t / ACROSS * VECTOR, c = t % ACROSS * VECTOR;
        vec row[VECTOR];
        UNROLL for (int i = 0; i < VECTOR; i++) row[i] = load(x + (r + i) * x_stride + c);
        UNROLL for (int half = 1; half < VECTOR; half *= 2) {
            vec next[VECTOR];
            UNROLL for (int i = 0; i < VECTOR / 2; i++) {
                vec a = row[i], b = row[i + VECTOR / 2];
                interleave(a, b);
                next[2 * i] = a;
                next[2 * i + 1] = b;
            }
            UNROLL for (int i = 0; i < VECTOR; i++) row[i] = next[i];
        }
        UNROLL for (int i = 0; i < VECTOR; i++) store(y + (c + i) * y_stride + r, row[i]);
    }
}
