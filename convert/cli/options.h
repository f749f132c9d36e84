/* One parser of the command line for all verbs. */
#ifndef TP_CLI_OPTIONS_H
#define TP_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "tensorpress.h"

/* X(id, long name, letter or 0, name of the value or NULL, help) */
#define OPTION_LIST(X)                                                                                     \
    X(OUTPUT, "output", 'o', "PATH", "write to PATH; - is stdout")                                         \
    X(STDOUT, "stdout", 'c', NULL, "write to stdout")                                                      \
    X(FORCE, "force", 'f', NULL, "overwrite an existing output")                                           \
    X(LEVEL, "level", 'l', "LEVEL", "fast, default or max")                                                \
    X(CODEC, "codec", 0, "NAME", "auto (default), raw, lz4, bg-lz4, rans, df11; auto where it does not fit") \
    X(SHA256, "sha256", 0, NULL, "also store every file's SHA-256")                                          \
    X(VERIFY, "verify", 0, NULL, "decode all again and compare")                                          \
    X(DRY_RUN, "dry-run", 0, NULL, "report the sizes on stdout, write nothing")                            \
    X(FILE, "file", 0, "PATH", "the file in the container, by its stored path")                            \
    X(MAX_OUTPUT, "max-output", 0, "SIZE",                                                                 \
      "refuse to restore more than SIZE bytes (K, M, G, T: powers of 1024)")                               \
    X(AGAINST, "against", 0, "ORIGINAL", "also compare byte for byte with this file or folder")                      \
    X(SLICE, "slice", 0, "A:B", "rows A to B - 1 of the slowest dimension; either may be left out")        \
    X(TO, "to", 0, "FORMAT", "df11 or safetensors")                                                        \
    X(PATTERN_DICT, "pattern-dict", 0, "FILE", "JSON: which weights are coded together")                   \
    X(REFERENCE, "reference", 0, "PATH", "the original or one like it: names, shapes, files")              \
    X(JSON, "json", 0, NULL, "JSON on stdout")                                                             \
    X(TENSORS, "tensors", 0, NULL, "also a line for every tensor")                                         \
    X(DIRECT, "direct", 0, NULL, "read and write large files past the page cache")                        \
    X(DEVICE, "device", 0, "NAME", "cpu (default), cuda or opencl, with :N for another than the first")       \
    X(KERNEL, "kernel", 0, "NAME", "only this CPU kernel: portable, avx2, avx512bw, avx512 or neon")       \
    X(THREADS, "threads", 'j', "N", "number of threads")                                                   \
    X(PROGRESS, "progress", 0, NULL, "show progress, also where stderr is no terminal")                    \
    X(NO_PROGRESS, "no-progress", 0, NULL, "show no progress")                                             \
    X(QUIET, "quiet", 'q', NULL, "say nothing but errors")                                                 \
    X(VERBOSE, "verbose", 'v', NULL, "say more")                                                           \
    X(HELP, "help", 'h', NULL, "this help")                                                                \
    X(VERSION, "version", 0, NULL, "the version")

#define OPTION_ENUM(id, name, letter, value, help) OPTION_##id,
enum option_id { OPTION_LIST(OPTION_ENUM) OPTION_COUNT };
#undef OPTION_ENUM
#define HAS(id) (1u << OPTION_##id)

struct options {
    const char *output; /* NULL: none named; never "-" */
    bool to_stdout;     /* -c or -o - */
    bool force, sha256, verify, dry_run, direct, json, tensors, quiet, verbose;
    int progress;     /* 1, 0, or -1: where stderr is a terminal */
    unsigned threads; /* 0: not given */
    tp_level level;
    tp_codec_choice codec;
    const char *to, *pattern_dict, *reference;
    const char *file, *against, *slice, *kernel, *device;
    uint64_t max_output; /* 0: no limit */
    const char **arguments;
    int argument_count;
};

struct verb {
    const char *name;
    const char *usage; /* arguments, for the first line of the help */
    const char *about;
    const char *examples;
    uint32_t options; /* HAS() bits; --help and --version come by themselves */
    int min_arguments, max_arguments;
    const char *argument_names; /* for "missing ..." */
    int (*run)(const struct options *options);
};

/* What to do after parsing. */
enum parsed { PARSED_RUN, PARSED_HELP, PARSED_VERSION, PARSED_ERROR };

/* Parses argv[2..]. On PARSED_ERROR the error line has been printed and *status is the exit status. */
enum parsed options_parse(const struct verb *verb, int argc, char **argv, struct options *options,
                          int *status);
void options_free(struct options *options);

/* The help of a verb, on stdout. */
void options_help(const struct verb *verb);

/* The options that the library takes, with the progress bar and warnings connected. */
void options_library(const struct options *options, tp_options *library);

/* Decimal digits only. */
bool parse_u64(const char *text, uint64_t *value);

#endif
