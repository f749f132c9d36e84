#include "support.h"

int main(void)
{
    memory_reset();
    int failed = run_dtypes() + run_layout() + run_safetensors() + run_gguf() + run_pickle() + run_zip();
    return failed == 0 ? 0 : 1;
}
