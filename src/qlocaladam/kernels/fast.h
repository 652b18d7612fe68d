/* The fast path: blocks of 64, momentum linear or normalised, variance in logarithms, rounded to nearest or
 * stochastically. Two loops over a row of up to 16 whole blocks: the first decodes, updates the moments and finds their
 * new ranges; the second moves the parameter and encodes. What a block needs is worked out for the row at once, before
 * and between the loops, with betas, floor and offset folded in. Ranges that need scaling, and what is not finite, are
 * left to the general path.
 *
 * `relative`, `plain`, `bits` and `stochastic` are known to the compiler wherever these functions are called.
 */
#define AHEAD 2304                                    /* floats between a load and its prefetch */

typedef struct {
    /* Rows of whole cache lines, which do not share cache sets. */
    _Alignas(64) float m[ROW], apart1[192], v[ROW], apart2[192], divisor[ROW];
    uint8_t wide_m[ROW], wide_v[ROW];                 /* codes of 4 bits, one a byte */
    /* Of each block, decoding: momentum and variance come multiplied by their betas. */
    float low_m[16], high_m[16], step_m[16], base_v[16], step_v[16];
    int32_t low_v[16], high_v[16];
    /* What the first loop found, and with it encoding. */
    float least_m[16], most_m[16];
    int32_t least_v[16], most_v[16];
    float per_m[16], shift_m[16], per_v[16], shift_v[16];
    uint32_t run_m[16], run_v[16];                    /* noise of each block */
} Room;

/* Below an eps of this the loops are not asked for normalised momentum beside variances below normal numbers, which they
 * take for 0 (in AVX-512) or for no step (at 0). From it on such a step is less than a millionth of the learning rate. */
#define ORDINARY_EPS 0x1p-40f

typedef struct {
    Adam adam;
    float beta1;                                      /* over the root of beta2 where momentum is relative */
    float offset, scaled_offset;
    const uint32_t *lane_m, *lane_v;                  /* noise of each place in a block */
} Fast;

/* Zero, or such that neither it nor 255 times its inverse leaves float32. */
INLINE int ordinary(float low, float high)
{
    int32_t k = greater(bits_of(low) & 0x7fffffff, bits_of(high) & 0x7fffffff);
    return (k == 0) | ((k >= bits_of(0x1p-60f)) & (k <= bits_of(0x1p125f)));
}

INLINE int prepare_decoding(const Fast *f, const Settings *s, int relative, int bits, int blocks, const float *ranges_m,
                            const float *ranges_v, Room *restrict r)
{
    const float top = bits == 8 ? 255.0f : 15.0f, zero = bits == 8 ? 127.0f : 7.0f, beta2 = f->adam.beta2;
    const float least_m = s->least_momentum, least_v = s->least_variance, offset = f->offset;
    const float floor = float_of((int32_t)f->adam.floor), log_beta2 = log2_of(beta2);
    float means[32] = {0}, squares[32] = {0};
    int usable = 1;
    memcpy(means, ranges_m, sizeof(float) * (size_t)blocks * (relative ? 1 : 2));
    memcpy(squares, ranges_v, 2 * sizeof(float) * (size_t)blocks);
    _Pragma("omp simd reduction(&:usable)")
    for (int j = 0; j < 16; j++) {
        const float low = relative ? -means[j] : means[2 * j], high = relative ? means[j] : means[2 * j + 1];
        const float square_low = squares[2 * j], square_high = squares[2 * j + 1];
        usable &= ordinary(low, high) & (square_low >= 0.0f) & (square_high <= 0x1p120f);
        if (relative) {
            r->step_m[j] = high * (f->beta1 / zero);
        } else {
            float span = high - low, highest = low + least_m > high ? low + least_m : high;
            r->low_m[j] = low * f->beta1;
            r->high_m[j] = highest * f->beta1;
            r->step_m[j] = (span < least_m ? least_m : span) * (f->beta1 / top * (1.0f + 0x1p-21f));
        }
        float l = log2_of(square_low + offset), h = log2_of(square_high + offset);
        int narrow = h - l < least_v;
        h = narrow ? l + least_v : h;
        float hair = 0x1p-19f + 0x1p-22f * float_of(greater(bits_of(l) & 0x7fffffff, bits_of(h) & 0x7fffffff));
        r->base_v[j] = l - hair + log_beta2;
        r->step_v[j] = (h - l + 2 * hair) / top;
        r->low_v[j] = bits_of((square_low < floor ? floor : square_low) * beta2);
        r->high_v[j] = narrow ? INFINITE_BITS : bits_of((square_high < floor ? floor : square_high) * beta2);
    }
    return usable;
}

/* Writes the new ranges. Returns 0 if codes cannot be made of them here. */
INLINE int prepare_encoding(const Fast *f, const Settings *s, int relative, int bits, int stochastic, int blocks,
                            float *restrict ranges_m, float *restrict ranges_v, Room *restrict r)
{
    const float zero = bits == 8 ? 127.0f : 7.0f, offset = f->offset;
    const int top = (bits == 8 ? 255 : 15) - relative;
    /* Levels are cut off, not rounded; stochastic noise comes as a number from 1 to 2. */
    const float shift = stochastic ? -1.0f : 0.5f;
    float means[32], squares[32];
    int usable = 1;
    _Pragma("omp simd reduction(&:usable)")
    for (int j = 0; j < 16; j++) {
        float low = r->least_m[j], high = r->most_m[j], span = high - low;
        if (relative) {
            high = high < 0x1p-60f ? 0.0f : high;
            means[j] = high;
            r->per_m[j] = levels_per(2.0f * high, top);
            r->shift_m[j] = zero + shift;
        } else {
            r->per_m[j] = levels_per(span < s->least_momentum ? s->least_momentum : span, top);
            r->shift_m[j] = shift - low * r->per_m[j];
            means[2 * j] = low;
            means[2 * j + 1] = high;
        }
        float l = log2_of(float_of(r->least_v[j]) + offset), h = log2_of(float_of(r->most_v[j]) + offset);
        float logs = h - l < s->least_variance ? s->least_variance : h - l;
        r->per_v[j] = levels_per(logs, bits == 8 ? 255 : 15);
        r->shift_v[j] = shift - l * r->per_v[j];
        squares[2 * j] = float_of(r->least_v[j]);
        squares[2 * j + 1] = float_of(r->most_v[j]);
        int finite = (r->least_v[j] >= 0) & (r->most_v[j] < INFINITE_BITS);
        usable &= (j >= blocks) | ((relative | ordinary(low, high)) & finite);
    }
    memcpy(ranges_m, means, sizeof(float) * (size_t)blocks * (relative ? 1 : 2));
    memcpy(ranges_v, squares, 2 * sizeof(float) * (size_t)blocks);
    return usable;
}

#ifdef __AVX512BW__
#include "fast_avx512.h"
#else
#include "fast_plain.h"
#endif

enum { NOT_BEGUN, NOT_ENCODED, DONE };

INLINE int fast_as(const Fast *f, const Settings *s, int plain, int relative, int bits, int stochastic, int blocks,
                   float *restrict p, const float *restrict g, uint8_t *restrict codes_m, float *restrict ranges_m,
                   uint8_t *restrict codes_v, float *restrict ranges_v, Room *restrict r)
{
    if (!prepare_decoding(f, s, relative, bits, blocks, ranges_m, ranges_v, r)) return NOT_BEGUN;
    first_loop(f, plain, relative, bits, blocks, p, g, codes_m, codes_v, r);
    for (int j = 0; j < blocks && relative && f->adam.eps < ORDINARY_EPS; j++)
        if (r->least_v[j] < bits_of(0x1p-126f)) return NOT_BEGUN;
    int usable = prepare_encoding(f, s, relative, bits, stochastic, blocks, ranges_m, ranges_v, r);
    if (!usable && relative)                          /* beside an infinite variance a momentum is nothing, if finite */
        for (int i = 0; i < 64 * blocks; i++) {
            float x = plain ? g[i] : gradient(f->adam, p[i], g[i]);
            if (bits_of(r->v[i]) == INFINITE_BITS && x - x == 0.0f) r->m[i] = 0.0f, r->divisor[i] = 1.0f;
        }
    second_loop(f, plain, relative, bits, stochastic, blocks, p, codes_m, codes_v, r);
    return usable ? DONE : NOT_ENCODED;
}

typedef int (*FastRow)(const Fast *, const Settings *, int, float *, const float *, uint8_t *, float *, uint8_t *,
                       float *, Room *);
#define FAST(name, plain, relative, bits, stochastic)                                                              \
    STAGE int name(const Fast *f, const Settings *s, int blocks, float *p, const float *g, uint8_t *cm, float *rm, \
                   uint8_t *cv, float *rv, Room *r)                                                                \
    {                                                                                                              \
        return fast_as(f, s, plain, relative, bits, stochastic, blocks, p, g, cm, rm, cv, rv, r);                  \
    }
#define FAST_OF_EACH_ROUNDING(name, plain, relative, bits) \
    FAST(name##_nearest, plain, relative, bits, 0) FAST(name##_stochastic, plain, relative, bits, 1)
#define FAST_OF_EACH_SIZE(name, plain, relative) \
    FAST_OF_EACH_ROUNDING(name##_8, plain, relative, 8) FAST_OF_EACH_ROUNDING(name##_4, plain, relative, 4)
FAST_OF_EACH_SIZE(linear, 1, 0)
FAST_OF_EACH_SIZE(linear_with_decay, 0, 0)
FAST_OF_EACH_SIZE(normalised, 1, 1)
FAST_OF_EACH_SIZE(normalised_with_decay, 0, 1)

#define ROUNDINGS_OF(name) {name##_nearest, name##_stochastic}
#define SIZES_OF(name) {ROUNDINGS_OF(name##_8), ROUNDINGS_OF(name##_4)}
static const FastRow FAST_ROWS[2][2][2][2] = {        /* relative, with decay, 4 bits, stochastic */
    {SIZES_OF(linear), SIZES_OF(linear_with_decay)}, {SIZES_OF(normalised), SIZES_OF(normalised_with_decay)}};

INLINE int is_fast(const Settings *s)
{
    return s->block_size == 64 && (s->momentum_kind == LINEAR || s->momentum_kind == NORMALISED)
           && s->variance_kind == LOG && s->rounding != FLOOR;
}

INLINE int fast_row(const Fast *f, const Settings *s, int blocks, float *p, const float *g, uint8_t *codes_m,
                    float *ranges_m, uint8_t *codes_v, float *ranges_v, Room *r)
{
    FastRow row = FAST_ROWS[s->momentum_kind == NORMALISED][!is_plain(s)][s->bits == 4][s->rounding == STOCHASTIC];
    return row(f, s, blocks, p, g, codes_m, ranges_m, codes_v, ranges_v, r);
}
