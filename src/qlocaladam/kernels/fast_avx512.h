/* The two loops of the fast path for AVX-512. A block of 64 is four vectors, which the first loop takes through each
 * stage together: one after the other they would wait for their own results. */
#include <immintrin.h>

typedef __m512 V;
typedef __m512i I;
#define K(x) _mm512_set1_ps(x)
#define FMA _mm512_fmadd_ps
#define MUL _mm512_mul_ps
#define BITS _mm512_castps_si512
#define FLOATS _mm512_castsi512_ps
#define UNROLL _Pragma("GCC unroll 4")

/* As exp2_of, to the same polynomial. */
INLINE V exp2_vector(V x)
{
    V n = _mm512_roundscale_ps(x, 0), f = _mm512_sub_ps(x, n);
    V y = FMA(f, K(0.00133908633f), K(0.00967603177f));
    y = FMA(f, FMA(f, FMA(f, y, K(0.0555035695f)), K(0.240221068f)), K(0.693147182f));
    return _mm512_scalef_ps(FMA(f, y, K(1.0f)), n);
}

/* log2(x) for x in [1, 2) by a minimax polynomial that is exact at both ends; absolute error 4e-7. */
INLINE V log2_vector(V x)
{
    V e = _mm512_getexp_ps(x), f = _mm512_sub_ps(_mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src), K(1.0f));
    V y = FMA(f, K(0.0152091004f), K(-0.0785349424f));
    y = FMA(f, FMA(f, y, K(0.193029616f)), K(-0.325140161f));
    y = FMA(f, FMA(f, FMA(f, y, K(0.473324182f)), K(-0.720554236f)), K(1.44266644f));
    return FMA(f, y, e);
}

/* One step of Newton's from y to 1 / sqrt(x), to float32 rounding. */
INLINE V refined(V x, V y) { return FMA(MUL(y, K(0.5f)), _mm512_fnmadd_ps(MUL(x, y), y, K(1.0f)), y); }

/* sqrt(x) for x from 0 on; 0 below normal numbers. */
INLINE V root_of(V x)
{
    V normal = _mm512_max_ps(x, K(0x1p-126f));
    return MUL(x, refined(normal, _mm512_rsqrt14_ps(normal)));
}

/* 1 / sqrt(x); 0 for x below normal numbers, NaN for an infinite one. */
INLINE V inverse_root(V x)
{
    __mmask16 normal = _mm512_cmp_ps_mask(x, K(0x1p-126f), _CMP_NLT_UQ);
    return refined(x, _mm512_maskz_rsqrt14_ps(normal, x));
}

/* Of numbers that are not negative, as integers: NaN is beyond all of them. */
INLINE V lesser_bits(V a, V b) { return FLOATS(_mm512_min_epi32(BITS(a), BITS(b))); }
INLINE V greater_bits(V a, V b) { return FLOATS(_mm512_max_epi32(BITS(a), BITS(b))); }

/* 16 codes as integers. Of codes of 4 bits only the lowest 4 bits of each are right, which is what a permutation reads. */
INLINE I load_codes(const uint8_t *from, int k, int bits)
{
    if (bits == 8) return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(from + 16 * k)));
    int64_t word;
    memcpy(&word, from + 8 * k, 8);
    const I halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const I shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    return _mm512_srlv_epi32(_mm512_permutexvar_epi32(halves, _mm512_set1_epi64(word)), shifts);
}

/* Levels below 0 are stored as 0, and above `top` as top. */
INLINE void store_codes(uint8_t *to, const I c[4], int bits, int top)
{
    I all = _mm512_packus_epi16(_mm512_packs_epi32(c[0], c[1]), _mm512_packs_epi32(c[2], c[3]));
    if (top < 255) all = _mm512_min_epu8(all, _mm512_set1_epi8((char)top));
    all = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), all);
    if (bits == 8) _mm512_storeu_si512(to, all);
    else _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi16_epi8(_mm512_maddubs_epi16(all, _mm512_set1_epi16(0x1001))));
}

/* The least of the lanes of a in lanes 0 to 7 of the result's minimum with itself turned, of b in the others. */
INLINE V fold(V a, V b) { return _mm512_min_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee)); }
INLINE V fold_pairs(V a, V b) { return _mm512_min_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd)); }
INLINE V fold_lanes(V a, V b) { return _mm512_min_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd)); }
INLINE V negative(V x) { return FLOATS(_mm512_xor_epi32(BITS(x), _mm512_set1_epi32(INT32_MIN))); }

/* Of four blocks: the least of m and v and the least of -m and -v, from four lanes each in one vector a block. Relative
 * momentum is between the negative of its largest magnitude, which is the least here, and that magnitude. */
INLINE void store_extremes(const V of_block[4], int j, int relative, Room *restrict r)
{
    float found[16] __attribute__((aligned(64)));
    _mm512_store_ps(found, fold_lanes(fold_lanes(of_block[0], of_block[1]), fold_lanes(of_block[2], of_block[3])));
    for (int i = 0; i < 4; i++) {
        r->least_m[j + i] = found[i];
        r->least_v[j + i] = bits_of(found[4 + i]);
        r->most_m[j + i] = -found[relative ? i : 8 + i];
        r->most_v[j + i] = bits_of(-found[12 + i]);
    }
}

INLINE void first_loop(const Fast *f, int plain, int relative, int bits, int blocks, const float *restrict p,
                       const float *restrict g, const uint8_t *restrict codes_m, const uint8_t *restrict codes_v,
                       Room *restrict r)
{
    const Adam a = f->adam;
    const int bytes = 8 * bits;
    const V lanes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), offset = K(f->scaled_offset);
    V largest = _mm512_setzero_ps();
    for (int group = 0; group < blocks; group += 4) {
        V extremes[4] = {lanes, lanes, lanes, lanes}, low_half[4], high_half[4];
        UNROLL
        for (int i = 0; i < 4; i++) {
            const V step_v = K(r->step_v[group + i]), base_v = K(r->base_v[group + i]);
            if (bits == 8) {
                high_half[i] = exp2_vector(FMA(lanes, MUL(step_v, K(16.0f)), base_v));
                low_half[i] = exp2_vector(MUL(lanes, step_v));
            } else {
                high_half[i] = exp2_vector(FMA(lanes, step_v, base_v));
            }
        }
        for (int j = group; j < blocks && j < group + 4; j++) {
            const V step_m = K(r->step_m[j]), low_m = K(r->low_m[j]), high_m = K(r->high_m[j]);
            const V low_v = K(float_of(r->low_v[j])), high_v = K(float_of(r->high_v[j]));
            /* A value is the product of two table entries, one for each half of its code; of 4 bits it is one entry. */
            V table_m = lanes, table_v = high_half[j - group], table_root = lanes;
            if (bits == 4) {
                table_v = greater_bits(lesser_bits(_mm512_sub_ps(table_v, offset), high_v), low_v);
                table_root = _mm512_sqrt_ps(table_v);
                table_m = relative ? MUL(_mm512_sub_ps(lanes, K(7.0f)), step_m)
                                   : _mm512_min_ps(FMA(lanes, step_m, low_m), high_m);
            }
            _mm_prefetch((const char *)(codes_m + bytes * j + AHEAD / 64 * bytes), _MM_HINT_T1);
            _mm_prefetch((const char *)(codes_v + bytes * j + AHEAD / 64 * bytes), _MM_HINT_T1);
            V G[4], M[4], W[4], Y[4];
            UNROLL
            for (int k = 0; k < 4; k++) {
                const int at = 64 * j + 16 * k;
                _mm_prefetch((const char *)(g + at + AHEAD), _MM_HINT_T1);
                _mm_prefetch((const char *)(p + at + AHEAD), _MM_HINT_T1);
                I code_m = load_codes(codes_m + bytes * j, k, bits), code_v = load_codes(codes_v + bytes * j, k, bits);
                if (bits == 4) {
                    M[k] = _mm512_permutexvar_ps(code_m, table_m);
                    W[k] = _mm512_permutexvar_ps(code_v, table_v);
                    if (relative) M[k] = MUL(M[k], _mm512_permutexvar_ps(code_v, table_root));
                } else {
                    V high = _mm512_permutexvar_ps(_mm512_srli_epi32(code_v, 4), table_v);
                    W[k] = _mm512_fmsub_ps(_mm512_permutexvar_ps(code_v, low_half[j - group]), high, offset);
                    W[k] = greater_bits(lesser_bits(W[k], high_v), low_v);
                    if (relative) M[k] = MUL(_mm512_cvtepi32_ps(_mm512_sub_epi32(code_m, _mm512_set1_epi32(127))), step_m);
                    else M[k] = _mm512_min_ps(FMA(_mm512_cvtepi32_ps(code_m), step_m, low_m), high_m);
                }
            }
            UNROLL
            for (int k = 0; k < 4; k++) M[k] = relative && bits == 8 ? MUL(M[k], root_of(W[k])) : M[k];
            UNROLL
            for (int k = 0; k < 4; k++) {
                const int at = 64 * j + 16 * k;
                G[k] = _mm512_loadu_ps(g + at);
                if (!plain) G[k] = MUL(G[k], K(a.sign));
                if (!plain && a.decay != 0.0f) G[k] = FMA(_mm512_loadu_ps(p + at), K(a.decay), G[k]);
                W[k] = FMA(MUL(G[k], K(a.rest2)), G[k], W[k]);
                M[k] = FMA(G[k], K(a.rest1), M[k]);
            }
            UNROLL
            for (int k = 0; k < 4; k++) Y[k] = relative ? inverse_root(W[k]) : _mm512_sqrt_ps(W[k]);
            UNROLL
            for (int k = 0; k < 4; k++) {
                const int at = 64 * j + 16 * k;
                _mm512_storeu_ps(r->v + at, W[k]);
                if (relative) M[k] = MUL(M[k], Y[k]);
                _mm512_storeu_ps(r->m + at, M[k]);
                V divisor = relative ? FMA(Y[k], K(a.eps), K(a.correction)) : FMA(Y[k], K(a.correction), K(a.eps));
                _mm512_storeu_ps(r->divisor + at, divisor);
            }
            /* Of relative momentum the least is that of -|m|. */
            V least_m = M[0], most_m = M[0], least_v = W[0], most_v = W[0];
            UNROLL
            for (int k = 1; k < 4; k++) {
                least_m = relative ? _mm512_range_ps(least_m, M[k], 15) : _mm512_min_ps(least_m, M[k]);
                if (!relative) most_m = _mm512_max_ps(most_m, M[k]);
                least_v = lesser_bits(least_v, W[k]);
                most_v = FLOATS(_mm512_max_epu32(BITS(most_v), BITS(W[k])));
            }
            largest = FLOATS(_mm512_max_epu32(BITS(largest), BITS(most_v)));
            extremes[j - group] = fold_pairs(fold(least_m, least_v), fold(negative(most_m), negative(most_v)));
        }
        store_extremes(extremes, group, relative, r);
    }
    /* The least of floats may pass over a NaN, so a row with one is marked. */
    if (_mm512_cmp_epu32_mask(BITS(largest), _mm512_set1_epi32(INFINITE_BITS), _MM_CMPINT_NLT)) r->most_v[0] = INFINITE_BITS;
}

INLINE V with_noise(V level, const uint32_t *lane, uint32_t run)
{
    I noise = _mm512_add_epi32(_mm512_loadu_si512(lane), _mm512_set1_epi32((int32_t)run));
    noise = _mm512_ternarylogic_epi32(_mm512_srli_epi32(noise, 9), _mm512_set1_epi32(0x7fff80), _mm512_set1_epi32(0x3f800000), 0xea);
    return _mm512_add_ps(level, FLOATS(noise));       /* the upper 16 bits, as a number from 1 to 2 */
}

INLINE void second_loop(const Fast *f, int plain, int relative, int bits, int stochastic, int blocks, float *restrict p,
                        uint8_t *restrict codes_m, uint8_t *restrict codes_v, Room *restrict r)
{
    const Adam a = f->adam;
    const int bytes = 8 * bits, top = bits == 8 ? 255 : 15;
    for (int j = 0; j < blocks; j++) {
        const V per_m = K(r->per_m[j]), shift_m = K(r->shift_m[j]), per_v = K(r->per_v[j]), shift_v = K(r->shift_v[j]);
        I code_m[4], code_v[4];
        UNROLL
        for (int k = 0; k < 4; k++) {
            const int at = 64 * j + 16 * k;
            V M = _mm512_loadu_ps(r->m + at), W = _mm512_loadu_ps(r->v + at), P = _mm512_loadu_ps(p + at);
            if (!plain) P = MUL(P, K(a.shrink));
            V moved = _mm512_div_ps(M, _mm512_loadu_ps(r->divisor + at));
            _mm512_storeu_ps(p + at, _mm512_fnmadd_ps(moved, K(a.step_size), P));
            V level_m = FMA(M, per_m, shift_m), level_v = FMA(log2_vector(_mm512_add_ps(W, K(f->offset))), per_v, shift_v);
            if (stochastic) {
                level_m = with_noise(level_m, f->lane_m + 16 * k, r->run_m[j]);
                level_v = with_noise(level_v, f->lane_v + 16 * k, r->run_v[j]);
            }
            code_m[k] = _mm512_cvttps_epi32(level_m);
            code_v[k] = _mm512_cvttps_epi32(level_v);
        }
        store_codes(codes_m + bytes * j, code_m, bits, top - relative);
        store_codes(codes_v + bytes * j, code_v, bits, top);
    }
}
