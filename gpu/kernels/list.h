/*
 * The instances of the stream kernel. X(name, K, T, R, low, c, rotated, strided): one for each shape of
 * docs/format.md section 6, and one for each kind of top part, strided, of the classes that have low bytes.
 */
#define TP_STREAM_KERNELS(X)                            \
    X(tp_bf16_s9, 10, 16, 7, 0, 1, 1, 0)                \
    X(tp_bf16_s8, 10, 16, 8, 0, 1, 1, 0)                \
    X(tp_bf16_s10, 10, 16, 6, 0, 1, 1, 0)               \
    X(tp_bf16_pairs, 10, 16, 8, 0, 2, 1, 0)             \
    X(tp_f16_s7, 10, 8, 1, 1, 1, 1, 0)                  \
    X(tp_f16_s6, 10, 8, 2, 1, 1, 1, 0)                  \
    X(tp_f32_s9, 10, 16, 7, 2, 1, 1, 0)                 \
    X(tp_f32_s8, 10, 16, 8, 2, 1, 1, 0)                 \
    X(tp_f32_s10, 10, 16, 6, 2, 1, 1, 0)                \
    X(tp_f32_pairs, 10, 16, 8, 2, 2, 1, 0)              \
    X(tp_f64_s12, 10, 16, 4, 6, 1, 1, 0)                \
    X(tp_f64_s11, 10, 16, 5, 6, 1, 1, 0)                \
    X(tp_f8_s7, 10, 8, 1, 0, 1, 1, 0)                   \
    X(tp_f8_s6, 10, 8, 2, 0, 1, 1, 0)                   \
    X(tp_f8_s5, 10, 8, 3, 0, 1, 1, 0)                   \
    X(tp_i8_s7, 10, 8, 1, 0, 1, 0, 0)                   \
    X(tp_i8_s6, 10, 8, 2, 0, 1, 0, 0)                   \
    X(tp_wide, 12, 8, 0, 0, 1, 0, 0)                    \
    X(tp_wide_strided, 12, 8, 0, 0, 1, 0, 1)            \
    X(tp_top16_s8_strided, 10, 16, 8, 0, 1, 1, 1)       \
    X(tp_top16_s9_strided, 10, 16, 7, 0, 1, 1, 1)       \
    X(tp_top16_s10_strided, 10, 16, 6, 0, 1, 1, 1)      \
    X(tp_top16_s11_strided, 10, 16, 5, 0, 1, 1, 1)      \
    X(tp_top16_s12_strided, 10, 16, 4, 0, 1, 1, 1)      \
    X(tp_top16_pairs_strided, 10, 16, 8, 0, 2, 1, 1)    \
    X(tp_top8_s7_strided, 10, 8, 1, 0, 1, 1, 1)         \
    X(tp_top8_s6_strided, 10, 8, 2, 0, 1, 1, 1)
