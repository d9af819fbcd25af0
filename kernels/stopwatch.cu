// What the launches of one stream spend in each phase: the time between two calls, which the device tells itself, so that
// a recorded iteration is timed from within.
#include "device.cuh"

KERNEL stopwatch(const long long* shares,  // (S, 2): summed, how the time since the last call divides into phase and other
                 long long* spent,         // (P), nanoseconds of each phase
                 long long* last,          // (1), nanoseconds: when the last call was
                 int S, int phase, int other) {
    SHARED(double, sums, 2 * LANES);
    BLOCK_FOR(lane, 0, LANES) {
        double own = 0.0, others = 0.0;
        for (int s = lane; s < S; s += LANES) {
            own += (double)shares[2 * s];
            others += (double)shares[2 * s + 1];
        }
        sums[2 * lane] = own;
        sums[2 * lane + 1] = others;
    }
    BARRIER();
    BLOCK_FOR(only, 0, 1) {
        double own = 0.0, others = 0.0;
        for (int lane = 0; lane < LANES; lane++) {
            own += sums[2 * lane];
            others += sums[2 * lane + 1];
        }
        const long long now = nanoseconds(), passed = now - last[0];
        const long long part = own + others > 0.0 ? (long long)((double)passed * (others / (own + others))) : 0;
        spent[phase] += passed - part;
        spent[other] += part;
        last[0] = now;
    }
}
