/* One Adam step over quantized states: decode, update the parameter, encode, a few blocks at a time.
 *
 * The blocks of a list of tensors, counted over all of them, are shared out among however many threads call
 * qlocaladam_work on one job; the result does not depend on how. Of either state no more than one row of
 * scratch exists in FP32: ROW values, or one block if that is longer. Each stage is a plain loop over the row, short
 * enough to stay in the first-level cache and simple enough to become vector code.
 *
 * codecs.py is the specification; the arithmetic here differs from it by float32 rounding only. NaN needs no special
 * case: as integers the bits of a positive NaN lie above those of every number, so a NaN range wins every comparison.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FP32, LINEAR, LOG, DYNAMIC, NORMALISED };      /* kinds of a state */
enum { NEAREST, FLOOR, STOCHASTIC };
enum { FLOAT32, BFLOAT16, FLOAT16 };                  /* types of parameters and gradients */

typedef struct {
    void *param;                                      /* of param_type */
    const void *grad;                                 /* of grad_type */
    void *momentum;                                   /* float or uint8_t, as its kind says */
    float *momentum_ranges;
    void *variance;
    float *variance_ranges;
    int64_t numel;
    int64_t first_block;                              /* blocks of all tensors before this one */
    float step_size;                                  /* learning rate over the bias correction of momentum */
    float inv_root_correction;                        /* 1 / sqrt(bias correction of variance) */
    float eps;
    float variance_floor;                             /* what a variance is read as at least */
    uint32_t step, index;                             /* of the update and of the tensor: they name its noise */
    int32_t param_type, grad_type;
} Tensor;

/* The values of the dynamic code, what lies in the middle between neighbours, and how many middles lie below each cell
 * of numbers with the same sign, exponent and first 7 bits. No cell has more than one middle in it. */
#define CELLS 3073                                    /* of each sign, from 2^-24 to 1 */
typedef struct {
    float map[256], middle[256];
    int32_t below[2 * CELLS];
} Dynamic;

typedef struct {
    int64_t block_size;
    int64_t padded_size;                              /* blocks are padded to this size, which their range shows; or 0 */
    const Dynamic *signed_code, *unsigned_code;       /* the dynamic code */
    int32_t momentum_kind, variance_kind, rounding;
    int32_t bits;                                     /* of a code: 8, or 4 and two codes to a byte */
    int32_t stochastic_weights;
    uint32_t seed;
    float beta1, beta2, one_minus_beta1, one_minus_beta2;
    float log_offset;
    float least_momentum, least_variance;             /* what a narrower range of a block counts as */
    float variance_padding;                           /* what a block of variances is padded with; momentum: 0 */
    float grad_sign, weight_decay, shrink;            /* shrink: what decoupled decay leaves of a parameter */
} Settings;

typedef struct {
    const Tensor *tensors;
    int64_t count;
    const Settings *settings;
    int64_t blocks, parts;                            /* of all tensors; how many parts to share out */
    _Atomic int64_t next;
    _Atomic int32_t out_of_memory;
} Job;

/* What stochastic rounding draws from, for one use of one tensor in one step: as noise_bits of codecs.py. */
typedef struct {
    _Alignas(64) uint32_t lane[64];
    uint32_t key;
} Noise;

/* Consecutive blocks of one state; only the last may be short. */
typedef struct {
    int64_t first, count;                             /* values */
    int blocks, size;
    uint8_t *codes;                                   /* one a byte */
    float *ranges;
    const Dynamic *code;
    const Noise *noise;
    int top;                                          /* the highest code */
    float least;                                      /* range */
} Blocks;

#define ROW 1024                                      /* shorter rows pay more for starting loops than they save */
#define MOST_BLOCKS (ROW / 2)
#define MOST 255                                      /* the highest code of 8 bits */
#define INFINITE_BITS 0x7f800000
#define NAN_BITS 0x7fc00000
#define INLINE static inline __attribute__((always_inline))
#define STAGE static __attribute__((noinline))
#define SIMD _Pragma("omp simd")                      /* no two rows overlap */
/* Runs a loop over the values of each block, with the paper's block size known to the compiler. */
#define FOR_EACH_BLOCK(...)                                                                    \
    for (int j = 0, n; j < b->blocks; j++) {                                                   \
        int64_t at = (int64_t)j * b->size, left = b->count - at;                               \
        if (b->size == 64 && left >= 64) { n = 64; SIMD for (int i = 0; i < 64; i++) __VA_ARGS__ } \
        else { n = (int)(left < b->size ? left : b->size); SIMD for (int i = 0; i < n; i++) __VA_ARGS__ } \
    }

/* How many floats the range of a block has. */
static int range_size(int kind) { return kind == DYNAMIC || kind == NORMALISED ? 1 : 2; }

INLINE int32_t bits_of(float x) { int32_t i; memcpy(&i, &x, 4); return i; }
INLINE float float_of(int32_t i) { float x; memcpy(&x, &i, 4); return x; }
INLINE int32_t lesser(int32_t a, int32_t b) { return a < b ? a : b; }
INLINE int32_t greater(int32_t a, int32_t b) { return a > b ? a : b; }

/* The bits of floats as integers of the same order, NaN beyond the infinities; its own inverse. */
INLINE int32_t ordered(int32_t b) { return b ^ ((b >> 31) & 0x7fffffff); }

/* 2^x for x in [-126, 128): Chebyshev interpolation of degree 5, relative error below 3e-7. */
INLINE float exp2_of(float x)
{
    float shifted = x + 0x1.8p23f;                    /* the nearest whole number, in the lowest bits */
    float f = x - (shifted - 0x1.8p23f);
    float y = 1.0f + f * (0.693147182f + f * (0.240221068f + f * (0.0555035695f
              + f * (0.00967603177f + f * 0.00133908633f))));
    return float_of(bits_of(y) + (int32_t)((uint32_t)bits_of(shifted) << 23));
}

/* log2(x) for normal x, exact at powers of two: minimax polynomial, absolute error below 4e-7. */
INLINE float log2_of(float x)
{
    int32_t b = bits_of(x), exponent = (b - 0x3f3504f3) >> 23;
    float f = float_of(b - (int32_t)((uint32_t)exponent << 23)) - 1.0f;
    return (float)exponent + f * (1.44269967f + f * (-0.721375883f + f * (0.480464965f + f * (-0.358962029f
           + f * (0.297263831f + f * (-0.272696435f + f * 0.170627996f))))));
}

INLINE uint32_t mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

/* As stream_key of keys.py. */
INLINE uint32_t key_of(const Tensor *t, const Settings *s, uint32_t use)
{
    uint32_t names[4] = {s->seed, t->step, t->index, use}, key = 0;
    for (int i = 0; i < 4; i++) key = mix((key + 0x9e3779b9u) ^ names[i]);
    return key;
}

STAGE void start_noise(uint32_t key, Noise *restrict noise)
{
    noise->key = key;
    SIMD for (int i = 0; i < 64; i++) noise->lane[i] = mix((uint32_t)i * 0x9e3779b9u + key);
}

INLINE uint32_t noise_of_run(uint32_t key, int64_t run) { return mix((uint32_t)run * 0x85ebca6bu + (key ^ 0x5bd1e995u)); }

/* The noise of the places start to start + n. */
STAGE void draw(const Noise *noise, int64_t start, int n, uint32_t *restrict out)
{
    for (int at = 0, m; at < n; at += m) {
        int from = (int)((start + at) & 63);
        uint32_t run = noise_of_run(noise->key, (start + at) >> 6);
        m = lesser(64 - from, n - at);
        SIMD for (int i = 0; i < m; i++) out[at + i] = noise->lane[from + i] + run;
    }
}

/* The upper 16 bits of noise as a fraction above 1: few enough that a whole level plus the fraction is exact. */
INLINE float from_one_to_two(uint32_t noise) { return float_of((int32_t)(noise >> 9 & 0x7fff80) | 0x3f800000); }

/* Numbers of 16 bits, without the conversions that not every processor has. */
INLINE float of_bfloat16(uint16_t h) { return float_of((int32_t)((uint32_t)h << 16)); }

INLINE float of_float16(uint16_t h)
{
    int32_t magnitude = (h & 0x7fff) << 13, sign = (int32_t)((uint32_t)(h & 0x8000) << 16);
    float denormal = float_of(magnitude + (113 << 23)) - 0x1p-14f;
    int32_t normal = magnitude + (112 << 23), infinite = magnitude | INFINITE_BITS;
    int32_t b = magnitude >= 31 << 23 ? infinite : normal;
    return float_of((magnitude < 1 << 23 ? bits_of(denormal) : b) | sign);
}

INLINE uint16_t to_bfloat16(float x)
{
    uint32_t b = (uint32_t)bits_of(x);
    uint32_t rounded = (b + 0x7fff + (b >> 16 & 1)) >> 16, nan = b >> 16 | 0x40;
    return (uint16_t)((b & 0x7fffffff) > INFINITE_BITS ? nan : rounded);
}

INLINE uint16_t to_float16(float x)
{
    int32_t b = bits_of(x) & 0x7fffffff, sign = (bits_of(x) >> 16) & 0x8000;
    int32_t normal = (b - (112 << 23) + 0xfff + (b >> 13 & 1)) >> 13;
    int32_t denormal = bits_of(float_of(b) + 0.5f) - bits_of(0.5f);
    int32_t huge = b > INFINITE_BITS ? 0x7e00 : 0x7c00;
    int32_t small = b < 113 << 23 ? denormal : normal;
    return (uint16_t)((b >= 143 << 23 ? huge : small) | sign);
}

/* One of the two neighbours of 16 bits, as stochastically_rounded of reference.py. */
INLINE float rounded_stochastically(float x, uint32_t noise, int type)
{
    int32_t b = bits_of(x), magnitude = b & 0x7fffffff, lost = type == BFLOAT16 ? 0xffff : 0x1fff;
    int32_t drawn = (int32_t)noise & lost, rounded = (int32_t)((uint32_t)b + (uint32_t)drawn) & ~lost;
    if (type == FLOAT16) {
        float steps = (float)(int32_t)(float_of(magnitude) * 0x1p24f + (float)drawn * 0x1p-13f) * 0x1p-24f;
        rounded = magnitude < bits_of(0x1p-14f) ? bits_of(steps) | (b & INT32_MIN) : rounded;
    }
    /* The upper neighbour of the largest number is none. */
    int32_t end = type == BFLOAT16 ? INFINITE_BITS : bits_of(65536.0f);
    return float_of(magnitude < INFINITE_BITS && (rounded & 0x7fffffff) < end ? rounded : b);
}

STAGE void load(const void *from, int type, int64_t first, int n, float *restrict out)
{
    const uint16_t *restrict h = (const uint16_t *)from + first;
    if (type == BFLOAT16) { SIMD for (int i = 0; i < n; i++) out[i] = of_bfloat16(h[i]); }
    else { SIMD for (int i = 0; i < n; i++) out[i] = of_float16(h[i]); }
}

/* With noise: rounded stochastically. */
STAGE void store(float *restrict x, int n, void *to, int type, int64_t first, const Noise *noise, uint32_t *restrict drawn)
{
    uint16_t *restrict h = (uint16_t *)to + first;
    if (noise) {
        draw(noise, first, n, drawn);
        if (type == BFLOAT16) { SIMD for (int i = 0; i < n; i++) x[i] = rounded_stochastically(x[i], drawn[i], BFLOAT16); }
        else { SIMD for (int i = 0; i < n; i++) x[i] = rounded_stochastically(x[i], drawn[i], FLOAT16); }
    }
    if (type == BFLOAT16) { SIMD for (int i = 0; i < n; i++) h[i] = to_bfloat16(x[i]); }
    else { SIMD for (int i = 0; i < n; i++) h[i] = to_float16(x[i]); }
}

/* The power of two that keeps a linear block of this range inside float32. */
INLINE float scale_of(float low, float high)
{
    int32_t magnitude = greater(bits_of(low) & 0x7fffffff, bits_of(high) & 0x7fffffff);
    float large = magnitude > bits_of(0x1p125f) ? 0.25f : 1.0f;
    return magnitude < bits_of(0x1p-60f) ? 0x1p64f : large;
}

/* What decoding needs of each block. Steps are a hair too long, so that clamping makes both end points exact. */
typedef struct { float low[MOST_BLOCKS], high[MOST_BLOCKS], step[MOST_BLOCKS], unscale[MOST_BLOCKS]; } LinearBlocks;
typedef struct { int32_t low[MOST_BLOCKS], high[MOST_BLOCKS]; float base[MOST_BLOCKS], step[MOST_BLOCKS]; } LogBlocks;

INLINE void read_linear(const Blocks *b, LinearBlocks *restrict r)
{
    SIMD
    for (int j = 0; j < b->blocks; j++) {
        float low = b->ranges[2 * j], high = b->ranges[2 * j + 1], scale = scale_of(low, high);
        float span = high * scale - low * scale, least = b->least * scale;
        r->high[j] = low + b->least > high ? low + b->least : high;
        r->low[j] = low * scale;
        r->step[j] = (span < least ? least : span) / (float)b->top * (1.0f + 0x1p-21f);
        r->unscale[j] = 1.0f / scale;
    }
}

/* Levels on both sides of an exact zero. */
INLINE void read_normalised(const Blocks *b, LinearBlocks *restrict r)
{
    SIMD for (int j = 0; j < b->blocks; j++) r->step[j] = b->ranges[j] / (float)(b->top / 2);
}

INLINE void read_log(const Blocks *b, float offset, LogBlocks *restrict r)
{
    SIMD
    for (int j = 0; j < b->blocks; j++) {
        float low = log2_of(b->ranges[2 * j] + offset), high = log2_of(b->ranges[2 * j + 1] + offset);
        int narrow = high - low < b->least;
        high = narrow ? low + b->least : high;
        int32_t largest = greater(bits_of(low) & 0x7fffffff, bits_of(high) & 0x7fffffff);
        float hair = 0x1p-19f + 0x1p-22f * float_of(largest);
        r->low[j] = bits_of(b->ranges[2 * j]);
        r->high[j] = narrow ? INFINITE_BITS : bits_of(b->ranges[2 * j + 1]);
        r->base[j] = low - hair;
        r->step[j] = (high - low + 2 * hair) / (float)b->top;
    }
}

INLINE float linear_value(const LinearBlocks *r, int j, uint8_t code)
{
    float x = ((float)code * r->step[j] + r->low[j]) * r->unscale[j];
    return x < r->high[j] ? x : r->high[j];
}

INLINE float normalised_value(const LinearBlocks *r, int j, int zero, uint8_t code)
{
    return (float)(code - zero) * r->step[j];
}

INLINE float log_value(const LogBlocks *r, int j, uint8_t code, float offset)
{
    int32_t x = bits_of(exp2_of((float)code * r->step[j] + r->base[j]) - offset);
    return float_of(greater(lesser(x, r->high[j]), r->low[j]));
}

STAGE void decode_linear(const Blocks *b, float *restrict out)
{
    const uint8_t *restrict codes = b->codes;
    LinearBlocks r;
    read_linear(b, &r);
    FOR_EACH_BLOCK({ out[at + i] = linear_value(&r, j, codes[at + i]); })
}

STAGE void decode_normalised(const Blocks *b, float *restrict out)
{
    const uint8_t *restrict codes = b->codes;
    LinearBlocks r;
    read_normalised(b, &r);
    FOR_EACH_BLOCK({ out[at + i] = normalised_value(&r, j, b->top / 2, codes[at + i]); })
}

STAGE void decode_log(const Blocks *b, float offset, float *restrict out)
{
    const uint8_t *restrict codes = b->codes;
    LogBlocks r;
    read_log(b, offset, &r);
    FOR_EACH_BLOCK({ out[at + i] = log_value(&r, j, codes[at + i], offset); })
}

STAGE void decode_dynamic(const Blocks *b, float *restrict out)
{
    const uint8_t *restrict codes = b->codes;
    const float *restrict map = b->code->map;
    /* The reference stores -0 for zeros, and -0 would be above every floor. */
    FOR_EACH_BLOCK({ out[at + i] = map[codes[at + i]] * __builtin_fabsf(b->ranges[j]); })
}

/* Smallest and largest as ordered integers; what is never negative is ordered as it is. */
INLINE void find_extremes(const float *restrict x, int n, int negative, int32_t *least, int32_t *most)
{
    int32_t lowest = INT32_MAX, highest = INT32_MIN;
    for (int i = 0; i < n; i++) {
        int32_t k = negative ? ordered(bits_of(x[i])) : bits_of(x[i]);
        lowest = lesser(lowest, k);
        highest = greater(highest, k);
    }
    *least = lowest;
    *most = highest;
}

/* Minimum and maximum of each block, both NaN where anything in it is not finite. */
STAGE void find_ranges(const Blocks *b, int negative, const float *restrict x, float *restrict low,
                       float *restrict high)
{
    int32_t least[MOST_BLOCKS], most[MOST_BLOCKS];
    int32_t lowest = negative ? ordered((int32_t)0xff800000) : -1;
    for (int j = 0; j < b->blocks; j++) {
        int64_t at = (int64_t)j * b->size, left = b->count - at;
        if (b->size == 64 && left >= 64 && negative) find_extremes(x + at, 64, 1, least + j, most + j);
        else if (b->size == 64 && left >= 64) find_extremes(x + at, 64, 0, least + j, most + j);
        else find_extremes(x + at, (int)(left < b->size ? left : b->size), negative, least + j, most + j);
    }
    SIMD
    for (int j = 0; j < b->blocks; j++) {
        int finite = least[j] > lowest && most[j] < INFINITE_BITS;
        low[j] = float_of(finite ? ordered(least[j]) : NAN_BITS);
        high[j] = float_of(finite ? ordered(most[j]) : NAN_BITS);
    }
}

INLINE float levels_per(float span, int top) { return span > 0.0f ? (float)top / span * (1.0f + 0x1p-22f) : 0.0f; }

STAGE void levels_linear(const Blocks *b, const float *restrict low, const float *restrict high, float *restrict x)
{
    float base[MOST_BLOCKS], scale[MOST_BLOCKS], per_level[MOST_BLOCKS];
    SIMD
    for (int j = 0; j < b->blocks; j++) {
        scale[j] = scale_of(low[j], high[j]);
        base[j] = low[j] * scale[j];
        float span = high[j] * scale[j] - base[j], least = b->least * scale[j];
        per_level[j] = levels_per(span < least ? least : span, b->top);
    }
    FOR_EACH_BLOCK({ x[at + i] = (x[at + i] * scale[j] - base[j]) * per_level[j]; })
}

STAGE void levels_log(const Blocks *b, const float *restrict low, const float *restrict high, float offset,
                      float *restrict x)
{
    float base[MOST_BLOCKS], per_level[MOST_BLOCKS];
    SIMD
    for (int j = 0; j < b->blocks; j++) {
        base[j] = log2_of(low[j] + offset);
        float span = log2_of(high[j] + offset) - base[j];
        per_level[j] = levels_per(span < b->least ? b->least : span, b->top);
    }
    FOR_EACH_BLOCK({ x[at + i] = (log2_of(x[at + i] + offset) - base[j]) * per_level[j]; })
}

STAGE void levels_normalised(const Blocks *b, const float *restrict largest, float *restrict x)
{
    float per_level[MOST_BLOCKS], zero = (float)(b->top / 2);
    SIMD for (int j = 0; j < b->blocks; j++) per_level[j] = levels_per(2.0f * largest[j], b->top);
    /* Of a block that is not finite the range says so, and the codes are 0. */
    FOR_EACH_BLOCK({ x[at + i] = largest[j] == largest[j] ? x[at + i] * per_level[j] + zero : 0.0f; })
}

STAGE void levels_dynamic(const Blocks *b, const float *restrict largest, float *restrict x)
{
    const float *restrict map = b->code->map;
    FOR_EACH_BLOCK({
        float relative = largest[j] > 0.0f ? x[at + i] / largest[j] : 0.0f;
        int32_t below = map[128] <= relative ? 128 : 0;
        below += map[below + 64] <= relative ? 64 : 0;
        below += map[below + 32] <= relative ? 32 : 0;
        below += map[below + 16] <= relative ? 16 : 0;
        below += map[below + 8] <= relative ? 8 : 0;
        below += map[below + 4] <= relative ? 4 : 0;
        below += map[below + 2] <= relative ? 2 : 0;
        below += map[below + 1] <= relative ? 1 : 0;
        below = lesser(below, MOST - 1);
        float fraction = (relative - map[below]) / (map[below + 1] - map[below]);
        fraction = fraction > 0.0f ? fraction : 0.0f;
        x[at + i] = (float)below + (fraction < 1.0f ? fraction : 1.0f);
    })
}

/* Levels and rounding to nearest in one. */
STAGE void codes_dynamic(const Blocks *b, const float *restrict largest, const float *restrict x)
{
    const float *restrict middle = b->code->middle;
    const int32_t *restrict below = b->code->below;
    int32_t found[ROW];
    for (int j = 0; j < b->blocks; j++) {
        int64_t at = (int64_t)j * b->size, end = at + b->size < b->count ? at + b->size : b->count;
        const float per = largest[j] > 0.0f ? largest[j] : __builtin_inff();
        for (; at < end; at += ROW) {                 /* gathers want whole integers, stores want bytes */
            const int n = (int)(end - at < ROW ? end - at : ROW);
            const float *restrict from = x + at;
            SIMD
            for (int i = 0; i < n; i++) {
                float relative = from[i] / per;
                int32_t bits = bits_of(relative), cell = ((bits & 0x7fffffff) >> 16) - 0x3380;
                cell = lesser(greater(cell, 0), CELLS - 1);
                int32_t code = below[CELLS + (bits < 0 ? -1 - cell : cell)];
                found[i] = code + (middle[code] <= relative ? 1 : 0);
            }
            uint8_t *restrict codes = b->codes + at;
            SIMD for (int i = 0; i < n; i++) codes[i] = (uint8_t)found[i];
        }
    }
}

STAGE void round_levels(const Blocks *b, int rounding, float *restrict x, uint32_t *restrict drawn)
{
    uint8_t *restrict codes = b->codes;
    int n = (int)b->count;
    if (rounding == STOCHASTIC) {
        draw(b->noise, b->first, n, drawn);
        SIMD for (int i = 0; i < n; i++) x[i] += from_one_to_two(drawn[i]) - 1.0f;
    }
    float shift = rounding == NEAREST ? 0.5f : 0.0f;
    int32_t top = b->top;
    SIMD
    for (int i = 0; i < n; i++) codes[i] = (uint8_t)lesser((int32_t)(x[i] + shift), top);
}

/* Codes of 4 bits, from two to a byte to one and back. A last one alone leaves the upper half 0. */
STAGE void unpack(const uint8_t *restrict packed, int64_t n, uint8_t *restrict codes)
{
    SIMD
    for (int64_t i = 0; i < (n + 1) / 2; i++) {
        codes[2 * i] = packed[i] & 15;
        codes[2 * i + 1] = packed[i] >> 4;
    }
}

STAGE void pack(uint8_t *restrict codes, int64_t n, uint8_t *restrict packed)
{
    codes[n] = 0;
    SIMD
    for (int64_t i = 0; i < (n + 1) / 2; i++) packed[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
}

/* What Adam needs, in registers. */
typedef struct {
    float beta1, beta2, rest1, rest2, eps, sign, decay, shrink, step_size, correction;
    uint32_t floor;
} Adam;

INLINE Adam adam_of(const Tensor *t, const Settings *s)
{
    return (Adam){s->beta1, s->beta2, s->one_minus_beta1, s->one_minus_beta2, t->eps, s->grad_sign, s->weight_decay,
                  s->shrink, t->step_size, t->inv_root_correction, (uint32_t)bits_of(t->variance_floor)};
}

/* No weight decay and no sign, which most training is: no instruction need be spent on them. */
INLINE int is_plain(const Settings *s)
{
    return s->grad_sign == 1.0f && s->weight_decay == 0.0f && s->shrink == 1.0f;
}

/* With coupled decay and sign. Without decay the parameter, which may be infinite, has no part in it. */
INLINE float gradient(Adam a, float p, float g) { return a.decay != 0.0f ? a.sign * g + a.decay * p : a.sign * g; }

/* `plain` and `relative` are known to the compiler wherever this is called. */
INLINE void adam(Adam a, int plain, int relative, float *restrict p, float g, float *restrict m, float *restrict v)
{
    uint32_t read = (uint32_t)bits_of(*v);
    float square = float_of((int32_t)(read > a.floor ? read : a.floor));
    float mean = relative ? *m * __builtin_sqrtf(square) : *m;
    if (!plain) {
        g = gradient(a, *p, g);
        *p *= a.shrink;
    }
    mean = a.beta1 * mean + a.rest1 * g;
    square = a.beta2 * square + a.rest2 * g * g;  /* in this order: g * g alone can be infinite */
    float root = __builtin_sqrtf(square);
    *p -= a.step_size * (mean / (root * a.correction + a.eps));
    *m = !relative ? mean : root != 0.0f ? mean / root : 0.0f;
    *v = square;
}

INLINE void update_as(const Tensor *t, const Settings *s, int plain, int relative, int n, float *restrict p,
                      const float *restrict g, float *restrict m, float *restrict v)
{
    Adam a = adam_of(t, s);
    SIMD for (int i = 0; i < n; i++) adam(a, plain, relative, p + i, g[i], m + i, v + i);
}

STAGE void update(const Tensor *t, const Settings *s, int n, float *p, const float *g, float *m, float *v)
{
    if (s->momentum_kind == NORMALISED) update_as(t, s, 0, 1, n, p, g, m, v);
    else if (is_plain(s)) update_as(t, s, 1, 0, n, p, g, m, v);
    else update_as(t, s, 0, 0, n, p, g, m, v);
}

static void decode(int kind, const Blocks *b, const Settings *s, float *out)
{
    if (kind == LINEAR) decode_linear(b, out);
    else if (kind == LOG) decode_log(b, s->log_offset, out);
    else if (kind == NORMALISED) decode_normalised(b, out);
    else decode_dynamic(b, out);
}

/* `padding`: what the range of the last block is to include, or NaN. */
static void encode(int kind, int negative, float padding, const Blocks *b, const Settings *s, float *x, uint32_t *drawn)
{
    float low[MOST_BLOCKS], high[MOST_BLOCKS];
    find_ranges(b, negative, x, low, high);
    if (padding < low[b->blocks - 1]) low[b->blocks - 1] = padding;
    if (padding > high[b->blocks - 1]) high[b->blocks - 1] = padding;
    if (range_size(kind) == 1) {
        for (int j = 0; j < b->blocks; j++) {
            float largest = -low[j] > high[j] ? -low[j] : high[j];
            b->ranges[j] = kind == NORMALISED && largest < 0x1p-60f ? 0.0f : largest;
        }
        if (kind == DYNAMIC && s->rounding == NEAREST) {
            codes_dynamic(b, b->ranges, x);
            return;
        }
        if (kind == DYNAMIC) levels_dynamic(b, b->ranges, x);
        else levels_normalised(b, b->ranges, x);
    } else {
        for (int j = 0; j < b->blocks; j++) b->ranges[2 * j] = low[j], b->ranges[2 * j + 1] = high[j];
        if (kind == LINEAR) levels_linear(b, low, high, x);
        else levels_log(b, low, high, s->log_offset, x);
    }
    round_levels(b, s->rounding, x, drawn);
}

#include "fast.h"

/* What one thread works in. */
typedef struct {
    float *m, *v, *p, *g;                             /* a row of each, for what is not FP32 */
    uint32_t *drawn;
    uint8_t *codes_m, *codes_v;                       /* of 4 bits, one a byte and one to spare */
    Noise of_m, of_v, of_weights;
    Room room;
} Scratch;

/* A state's blocks from `block` on, `count` values of them. Codes of 4 bits are unpacked into `scratch`. */
static Blocks blocks_of(int kind, const Settings *s, void *state, float *ranges, const Dynamic *code, const Noise *noise,
                        float least, int64_t block, int64_t count, uint8_t *scratch)
{
    int64_t size = s->block_size, first = block * size;
    Blocks b = {first, count, (int)((count + size - 1) / size), (int)size, (uint8_t *)state + first,
                ranges + range_size(kind) * block, code, noise, (1 << s->bits) - (kind == NORMALISED ? 2 : 1), least};
    if (kind != FP32 && s->bits == 4) {
        unpack((uint8_t *)state + first / 2, count, scratch);
        b.codes = scratch;
    }
    return b;
}

static Blocks momentum_of(const Tensor *t, const Settings *s, int64_t block, int64_t n, Scratch *x)
{
    return blocks_of(s->momentum_kind, s, t->momentum, t->momentum_ranges, s->signed_code, &x->of_m, s->least_momentum,
                     block, n, x->codes_m);
}

static Blocks variance_of(const Tensor *t, const Settings *s, int64_t block, int64_t n, Scratch *x)
{
    return blocks_of(s->variance_kind, s, t->variance, t->variance_ranges, s->unsigned_code, &x->of_v, s->least_variance,
                     block, n, x->codes_v);
}

/* Stores the moments m and v of the values from `block` on. */
static void encode_row(const Tensor *t, const Settings *s, const Blocks *bm, const Blocks *bv, float *m, float *v,
                       Scratch *x)
{
    int kind_m = s->momentum_kind, kind_v = s->variance_kind;
    int64_t end = bm->first + bm->count;
    int padded = s->padded_size && end == t->numel && end % s->padded_size;
    float nothing = float_of(NAN_BITS);
    if (kind_m != FP32) encode(kind_m, 1, padded && kind_m == LINEAR ? 0.0f : nothing, bm, s, m, x->drawn);
    if (kind_v != FP32) encode(kind_v, 0, padded && kind_v != DYNAMIC ? s->variance_padding : nothing, bv, s, v, x->drawn);
    if (kind_m != FP32 && s->bits == 4) pack(x->codes_m, bm->count, (uint8_t *)t->momentum + bm->first / 2);
    if (kind_v != FP32 && s->bits == 4) pack(x->codes_v, bv->count, (uint8_t *)t->variance + bv->first / 2);
}

/* Any setting: stage after stage over the row of n values from `block` on, whose parameters and gradients p and g are. */
static void general_row(const Tensor *t, const Settings *s, int64_t block, int64_t n, float *p, const float *g, Scratch *x)
{
    int64_t first = block * s->block_size;
    Blocks bm = momentum_of(t, s, block, n, x), bv = variance_of(t, s, block, n, x);
    float *m = s->momentum_kind == FP32 ? (float *)t->momentum + first : x->m;
    float *v = s->variance_kind == FP32 ? (float *)t->variance + first : x->v;
    if (s->variance_kind != FP32) decode(s->variance_kind, &bv, s, v);
    if (s->momentum_kind != FP32) decode(s->momentum_kind, &bm, s, m);
    update(t, s, (int)n, p, g, m, v);
    encode_row(t, s, &bm, &bv, m, v, x);
}

/* As many whole blocks of the row as the fast path takes; returns their number. */
static int64_t fast_blocks(const Tensor *t, const Settings *s, const Fast *f, int64_t block, int64_t n, float *p,
                           const float *g, Scratch *x)
{
    int blocks = (int)(n / 64), ranges = range_size(s->momentum_kind);
    if (!blocks) return 0;
    if (s->rounding == STOCHASTIC)
        SIMD for (int j = 0; j < 16; j++) {
            x->room.run_m[j] = noise_of_run(x->of_m.key, block + j);
            x->room.run_v[j] = noise_of_run(x->of_v.key, block + j);
        }
    int64_t codes = block * 8 * s->bits;
    int done = fast_row(f, s, blocks, p, g, (uint8_t *)t->momentum + codes, t->momentum_ranges + ranges * block,
                        (uint8_t *)t->variance + codes, t->variance_ranges + 2 * block, &x->room);
    if (done == NOT_ENCODED) {
        Blocks bm = momentum_of(t, s, block, 64 * blocks, x), bv = variance_of(t, s, block, 64 * blocks, x);
        encode_row(t, s, &bm, &bv, x->room.m, x->room.v, x);
    }
    return done == NOT_BEGUN ? 0 : blocks;
}

/* Blocks in a row. */
static int64_t rows_of(const Settings *s) { return s->block_size < ROW ? ROW / s->block_size : 1; }

static Scratch *make_scratch(const Settings *s)
{
    size_t length = (size_t)(rows_of(s) * s->block_size), size = sizeof(Scratch) + length * (5 * 4 + 2) + 4;
    Scratch *x = aligned_alloc(_Alignof(Scratch), (size + _Alignof(Scratch) - 1) & -_Alignof(Scratch));
    if (!x) return NULL;
    memset(x, 0, size);
    float *rows = (float *)(x + 1);
    x->m = rows, x->v = rows + length, x->p = rows + 2 * length, x->g = rows + 3 * length;
    x->drawn = (uint32_t *)(rows + 4 * length);
    x->codes_m = (uint8_t *)(x->drawn + length), x->codes_v = x->codes_m + length + 2;
    return x;
}

static void step_range(const Job *job, int64_t begin, int64_t end, Scratch *x)
{
    const Settings *s = job->settings;
    int64_t size = s->block_size, row = rows_of(s);
    const int fast = is_fast(s);
    for (const Tensor *t = job->tensors; t < job->tensors + job->count; t++) {
        int64_t blocks = (t->numel + size - 1) / size;
        /* Rows are those of the tensor, whoever takes them: which path a row takes depends on all of its blocks. */
        int64_t from = begin > t->first_block ? (begin - t->first_block + row - 1) / row * row : 0;
        int64_t to = end - t->first_block < blocks ? (end - t->first_block + row - 1) / row * row : blocks;
        if (to > blocks) to = blocks;
        if (from >= to) continue;
        int rounds_weights = s->stochastic_weights && t->param_type != FLOAT32;
        if (s->rounding == STOCHASTIC) start_noise(key_of(t, s, 0), &x->of_m), start_noise(key_of(t, s, 1), &x->of_v);
        if (rounds_weights) start_noise(key_of(t, s, 2), &x->of_weights);
        float relative = s->beta1 > 0.0f ? s->beta1 / __builtin_sqrtf(s->beta2) : 0.0f;
        Fast f = {adam_of(t, s), s->momentum_kind == NORMALISED ? relative : s->beta1,
                  s->log_offset, s->log_offset * s->beta2, x->of_m.lane, x->of_v.lane};
        for (int64_t block = from; block < to; block += row) {
            int64_t first = block * size, last = (block + row < to ? block + row : to) * size;
            int64_t n = (last < t->numel ? last : t->numel) - first;
            float *p = t->param_type == FLOAT32 ? (float *)t->param + first : x->p;
            const float *g = t->grad_type == FLOAT32 ? (const float *)t->grad + first : x->g;
            if (t->param_type != FLOAT32) load(t->param, t->param_type, first, (int)n, x->p);
            if (t->grad_type != FLOAT32) load(t->grad, t->grad_type, first, (int)n, x->g);
            int64_t done = fast ? fast_blocks(t, s, &f, block, n, p, g, x) : 0;
            if (done * size < n) general_row(t, s, block + done, n - done * size, p + done * size, g + done * size, x);
            if (t->param_type != FLOAT32)
                store(p, (int)n, t->param, t->param_type, first, rounds_weights ? &x->of_weights : NULL, x->drawn);
        }
    }
}

/* What every thread of a step runs: parts of the blocks until none is left, so that a slow core gets fewer. */
void qlocaladam_work(Job *job)
{
    int64_t row = rows_of(job->settings), rows = (job->blocks + row - 1) / row;
    Scratch *scratch = make_scratch(job->settings);
    if (!scratch) {
        atomic_store(&job->out_of_memory, 1);
        return;
    }
    for (int64_t part; (part = atomic_fetch_add(&job->next, 1)) < job->parts;)
        step_range(job, rows * part / job->parts * row, rows * (part + 1) / job->parts * row, scratch);
    free(scratch);
}
