/* The two loops of the fast path in plain C, which the compiler turns into vector code. */

INLINE void first_loop(const Fast *f, int plain, int relative, int bits, int blocks, const float *restrict p,
                       const float *restrict g, const uint8_t *restrict codes_m, const uint8_t *restrict codes_v,
                       Room *restrict r)
{
    const Adam a = f->adam;
    const int bytes = 8 * bits, zero = bits == 8 ? 127 : 7;
    if (bits == 4) unpack(codes_m, 64 * blocks, r->wide_m), unpack(codes_v, 64 * blocks, r->wide_v);
    const uint8_t *restrict from_m = bits == 4 ? r->wide_m : codes_m, *restrict from_v = bits == 4 ? r->wide_v : codes_v;
    for (int j = 0; j < blocks; j++) {
        const int at = 64 * j;
        const float low_m = r->low_m[j], high_m = r->high_m[j], step_m = r->step_m[j];
        const float base_v = r->base_v[j], step_v = r->step_v[j], offset = f->scaled_offset;
        const int32_t low_v = r->low_v[j], high_v = r->high_v[j];
        for (int i = 0; i < 64; i += 16)
            __builtin_prefetch(p + at + i + AHEAD, 1, 2), __builtin_prefetch(g + at + i + AHEAD, 0, 2);
        __builtin_prefetch(codes_m + bytes * j + AHEAD / 64 * bytes, 1, 2);
        __builtin_prefetch(codes_v + bytes * j + AHEAD / 64 * bytes, 1, 2);
        float least_m = __builtin_inff(), most_m = -__builtin_inff();
        int32_t least_v = INT32_MAX, most_v = INT32_MIN;
        _Pragma("omp simd reduction(min:least_m,least_v) reduction(max:most_m,most_v)")
        for (int i = at; i < at + 64; i++) {
            float x = plain ? g[i] : gradient(a, p[i], g[i]);
            int32_t k = bits_of(exp2_of((float)from_v[i] * step_v + base_v) - offset);
            float square = float_of(greater(lesser(k, high_v), low_v)), mean;
            if (relative) {
                mean = (float)((int32_t)from_m[i] - zero) * step_m * __builtin_sqrtf(square);
            } else {
                mean = (float)from_m[i] * step_m + low_m;
                mean = mean < high_m ? mean : high_m;
            }
            mean += a.rest1 * x;
            square += a.rest2 * x * x;
            float root = __builtin_sqrtf(square), inverse = root != 0.0f ? 1.0f / root : 0.0f;
            if (relative) mean *= inverse;
            r->divisor[i] = relative ? a.correction + a.eps * inverse : root * a.correction + a.eps;
            r->m[i] = mean;
            r->v[i] = square;
            float magnitude = relative ? __builtin_fabsf(mean) : mean;
            least_m = mean < least_m ? mean : least_m;
            most_m = magnitude > most_m ? magnitude : most_m;
            least_v = lesser(bits_of(square), least_v);
            most_v = greater(bits_of(square), most_v);
        }
        r->least_m[j] = least_m, r->most_m[j] = most_m, r->least_v[j] = least_v, r->most_v[j] = most_v;
    }
}

INLINE void second_loop(const Fast *f, int plain, int relative, int bits, int stochastic, int blocks, float *restrict p,
                        uint8_t *restrict codes_m, uint8_t *restrict codes_v, Room *restrict r)
{
    const Adam a = f->adam;
    const float offset = f->offset;
    const uint32_t *restrict lane_m = f->lane_m, *restrict lane_v = f->lane_v;
    const int32_t top_v = bits == 8 ? 255 : 15, top_m = top_v - relative;
    uint8_t *restrict to_m = bits == 4 ? r->wide_m : codes_m, *restrict to_v = bits == 4 ? r->wide_v : codes_v;
    for (int j = 0; j < blocks; j++) {
        const int at = 64 * j;
        const float per_m = r->per_m[j], shift_m = r->shift_m[j], per_v = r->per_v[j], shift_v = r->shift_v[j];
        const uint32_t run_m = r->run_m[j], run_v = r->run_v[j];
        const float *restrict M = r->m + at, *restrict W = r->v + at, *restrict D = r->divisor + at;
        float *restrict P = p + at;
        SIMD
        for (int i = 0; i < 64; i++) {
            P[i] = (plain ? P[i] : P[i] * a.shrink) - a.step_size * (M[i] / D[i]);
            float level_m = M[i] * per_m + shift_m, level_v = log2_of(W[i] + offset) * per_v + shift_v;
            if (stochastic) {
                level_m += from_one_to_two(lane_m[i] + run_m);
                level_v += from_one_to_two(lane_v[i] + run_v);
            }
            /* Of a range that is narrow beside its numbers, levels are off by float32 rounding of these: also below 0. */
            to_m[at + i] = (uint8_t)lesser(greater((int32_t)level_m, 0), top_m);
            to_v[at + i] = (uint8_t)lesser(greater((int32_t)level_v, 0), top_v);
        }
    }
    if (bits == 4)
        for (int i = 0; i < 32 * blocks; i++) {
            codes_m[i] = (uint8_t)(r->wide_m[2 * i] | r->wide_m[2 * i + 1] << 4);
            codes_v[i] = (uint8_t)(r->wide_v[2 * i] | r->wide_v[2 * i + 1] << 4);
        }
}
