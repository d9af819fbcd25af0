// The MLP's answers to observations: values, or the parameters of the action distribution.
#include "mlp.cuh"

KERNEL mlp_values(const float* packed,       // (K)
                  const float* observation,  // (M, D)
                  float* value,              // (M)
                  int K, int M) {
    SHARED_TILE(tile, TILE_SIZE);
    const Range share = block_share(M);
    for (int begin = share.begin; begin < share.end; begin += SAMPLES) {
        const int rows = share.end - begin < SAMPLES ? share.end - begin : SAMPLES;
        load_observations(observation, begin, rows, tile);
        forward<TOWERS - 1>(packed, rows, tile);
        BLOCK_FOR(s, 0, rows) value[begin + s] = tile[TILE_OUTPUT + value_row(TOWERS - 1) * SAMPLES + s];
    }
}

KERNEL mlp_distribution(const float* packed,       // (K)
                        const float* observation,  // (M, D)
                        float* parameters,         // (M, PARAMETER_WIDTH)
                        int K, int M) {
    SHARED_TILE(tile, TILE_SIZE);
    const Range share = block_share(M);
    for (int begin = share.begin; begin < share.end; begin += SAMPLES) {
        const int rows = share.end - begin < SAMPLES ? share.end - begin : SAMPLES;
        load_observations(observation, begin, rows, tile);
        forward<0>(packed, rows, tile);
        BLOCK_FOR(s, 0, rows)
            parameters_of(packed, tile + TILE_OUTPUT, s, parameters + (begin + s) * PARAMETER_WIDTH);
    }
}

// Values of the observations that a time limit alone cut an episode at; the others' are left as they are.
KERNEL mlp_final_values(const float* packed,              // (K)
                        const float* observation,         // (M, D)
                        const unsigned char* terminated,  // (M)
                        const unsigned char* truncated,   // (M)
                        float* value,                     // (M)
                        int K, int M) {
    SHARED_TILE(tile, TILE_SIZE);
    SHARED(int, row, SAMPLES);
    SHARED(int, found, 2);  // how many, and where the search goes on
    const Range share = block_share(M);
    int next = share.begin;
    while (next < share.end) {
        BLOCK_FOR(only, 0, 1) {
            int count = 0, m = next;
            for (; m < share.end && count < SAMPLES; m++)
                if (truncated[m] && !terminated[m]) row[count++] = m;
            found[0] = count;
            found[1] = m;
        }
        BARRIER();
        const int rows = found[0];
        next = found[1];  // of each thread: the next search may begin before the slowest has looked
        BLOCK_FOR(i, 0, rows * D) tile[i] = observation[row[i / D] * D + i % D];
        BARRIER();
        if (rows) forward<TOWERS - 1>(packed, rows, tile);
        BLOCK_FOR(s, 0, rows) value[row[s]] = tile[TILE_OUTPUT + value_row(TOWERS - 1) * SAMPLES + s];
        BARRIER();
    }
}
