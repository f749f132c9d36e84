#include "support.h"

#include <string.h>

/* With names of groups as arguments only these; `--memory` is the test of memory calling itself. */
int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } groups[] = {{"text", test_text},
                  {"cutting", test_cutting},
                  {"index", test_index},
                  {"container", test_container},
                  {"output", test_output},
                  {"direct", test_direct},
                  {"reader", test_reader},
                  {"box", test_box},
                  {"callback", test_callback},
                  {"errors", test_errors},
                  {"threads", test_threads},
                  {"linear", test_linear},
                  {"writer", test_writer},
                  {"conversion", test_conversion},
                  {"folder", test_folder},
                  {"repository", test_repository}};
    int failed = 0;
    if (argc == 5 && strcmp(argv[1], "--memory") == 0) return memory_child(argv + 2);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        bool wanted = argc == 1;
        for (int k = 1; k < argc; k++) wanted |= strcmp(argv[k], groups[i].name) == 0;
        if (wanted) failed += groups[i].run();
    }
    bool wanted = argc == 1;
    for (int k = 1; k < argc; k++) wanted |= strcmp(argv[k], "memory") == 0;
    if (wanted) failed += test_memory("/proc/self/exe");
    return failed == 0 ? 0 : 1;
}
