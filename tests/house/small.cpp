// The header is C++ too, and its functions have C's names.
#include <tensorpress.h>

#include <cstdio>

int main()
{
    tp_error error;
    tp_options options;
    tp_options_init(&options);
    options.level = TP_LEVEL_MAX;
    tp_reader *reader = nullptr;
    const tp_status status = tp_open("/nonexistent/model.tpress", &reader, &error);
    std::printf("%s: %s\n", tp_version(), error.message);
    return tp_abi_version() == TP_ABI_VERSION && status == TP_IO ? 0 : 1;
}
