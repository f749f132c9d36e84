/*
 * The codec's tests.
 *
 * test_codec [GROUP...]: runs all groups, or these.
 *
 * test_codec --write-corpus FRAMES LINES: frames with their raw bytes, and the coverage that they must
 * give, for the second decoder.
 *
 * test_codec --write-goldens FOLDER: new golden frames (tests/goldens/README.md).
 */
#include "support.h"

int write_corpus(const char *frames, const char *lines);
int write_goldens(const char *folder);

static const struct {
    const char *name;
    int (*run)(void);
} groups[] = {
    {"kernels", run_kernels},
    {"tables", run_tables},
    {"streams", run_streams},
    {"round-trips", run_round_trips},
    {"combinations", run_combinations},
    {"validator", run_validator},
    {"corruption", run_corruption},
    {"goldens", run_goldens},
    {"df11", run_df11},
};
enum { GROUPS = sizeof groups / sizeof *groups };

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "--write-corpus")) return write_corpus(argv[2], argv[3]);
    if (argc == 3 && !strcmp(argv[1], "--write-goldens")) return write_goldens(argv[2]);
    int failures = 0;
    for (int i = 1; i < argc; i++) {
        size_t g = 0;
        while (g < GROUPS && strcmp(argv[i], groups[g].name) != 0) g++;
        if (g == GROUPS) {
            fprintf(stderr, "there is no group '%s'\n", argv[i]);
            return 2;
        }
        failures += groups[g].run();
    }
    for (size_t g = 0; g < GROUPS && argc == 1; g++) failures += groups[g].run();
    return failures ? 1 : 0;
}
