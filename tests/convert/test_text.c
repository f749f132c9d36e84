/* Names made safe for a terminal, and paths short enough for a message. */
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "convert/text.h"

static void escapes(void **state)
{
    (void)state;
    static const struct {
        const char *data;
        size_t size;
        const char *shown;
    } cases[] = {
        {"model.layers.0", 14, "model.layers.0"},
        {"", 0, ""},
        {"a\nb\tc", 5, "a\\x0ab\\x09c"},
        {"a\0b", 3, "a\\x00b"},
        {"\x1b[31mred", 8, "\\x1b[31mred"},
        {"\x7f", 1, "\\x7f"},
        {"\xc3\xa9t\xc3\xa9", 5, "\xc3\xa9t\xc3\xa9"},
        {"\xf0\x9f\xa6\x86", 4, "\xf0\x9f\xa6\x86"},
        {"\xc2\x9b"
         "31m",
         5, "\\xc2\\x9b31m"},                            /* C1 control */
        {"\xe2\x80\xae", 3, "\\xe2\\x80\\xae"},          /* right-to-left override */
        {"\xe2\x80\xa8", 3, "\\xe2\\x80\\xa8"},          /* line separator */
        {"\xff\xfe", 2, "\\xff\\xfe"},                   /* never in UTF-8 */
        {"\xc0\xaf", 2, "\\xc0\\xaf"},                   /* overlong */
        {"\xe0\x80\xaf", 3, "\\xe0\\x80\\xaf"},          /* overlong */
        {"\xed\xa0\x80", 3, "\\xed\\xa0\\x80"},          /* surrogate */
        {"\xf4\x90\x80\x80", 4, "\\xf4\\x90\\x80\\x80"}, /* beyond the last code point */
        {"\xe2\x82", 2, "\\xe2\\x82"},                   /* cut off */
        {"a\xe2"
         "b",
         3, "a\\xe2b"},
    };
    char shown[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(tp_text_escape(cases[i].data, cases[i].size, shown, sizeof shown),
                            cases[i].shown);
}

static void cuts_long_text(void **state)
{
    (void)state;
    char shown[8];
    assert_string_equal(tp_text_escape("1234567", 7, shown, sizeof shown), "1234567");
    assert_string_equal(tp_text_escape("12345678", 8, shown, sizeof shown), "1234...");
    assert_string_equal(tp_text_escape("123\n5678", 8, shown, sizeof shown), "123...");
    assert_string_equal(tp_text_escape("abc\n", 4, shown, sizeof shown), "abc\\x0a");
    assert_string_equal(tp_text_escape("12345678", 8, shown, 4), "...");
    assert_string_equal(tp_text_escape("\n", 1, shown, 4), "...");
}

static void shortens_paths(void **state)
{
    (void)state;
    char path[5000], shown[TP_SHOWN_PATH];
    assert_string_equal(tp_text_path("a/b", shown), "a/b");
    memset(path, 'x', sizeof path);
    memcpy(path + 4980, "/model.safetensors", 19);
    tp_text_path(path, shown);
    assert_true(strlen(shown) < TP_SHOWN_PATH && strlen(shown) > 400);
    assert_memory_equal(shown, "...x", 4);
    assert_string_equal(shown + strlen(shown) - 18, "/model.safetensors");
    memset(path, '\x01', sizeof path);
    memcpy(path + 4980, "/model.safetensors", 19);
    tp_text_path(path, shown);
    assert_string_equal(shown + strlen(shown) - 18, "/model.safetensors");
    /* Not from the middle of a character. */
    for (size_t shift = 0; shift < 3; shift++) {
        memset(path, 'x', shift);
        for (size_t i = 0; i < 1300; i++) memcpy(path + shift + 3 * i, "\xe2\x82\xac", 3);
        strcpy(path + shift + 3900, "/end");
        tp_text_path(path, shown);
        assert_null(strstr(shown, "\\x"));
        assert_string_equal(shown + strlen(shown) - 4, "/end");
    }
}

static void system_errors(void **state)
{
    (void)state;
    tp_error error = {0};
    assert_int_equal(tp_error_system(&error, ENOSPC, "%s: cannot write", "x"), TP_NO_SPACE);
    assert_string_equal(error.message, "x: cannot write: No space left on device");
    assert_int_equal(error.sys_errno, ENOSPC);
    assert_int_equal(tp_error_system(&error, EDQUOT, "x"), TP_NO_SPACE);
    assert_int_equal(tp_error_system(&error, ENOMEM, "x"), TP_NO_MEMORY);
    assert_int_equal(tp_error_system(&error, EACCES, "x"), TP_IO);
    assert_int_equal(tp_error_system(NULL, EACCES, "x"), TP_IO);
}

static void base_names(void **state)
{
    (void)state;
    assert_string_equal(tp_text_base("a/b/c.gguf"), "c.gguf");
    assert_string_equal(tp_text_base("c.gguf"), "c.gguf");
    assert_string_equal(tp_text_base("a/"), "");
}

int test_text(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes),       cmocka_unit_test(cuts_long_text), cmocka_unit_test(shortens_paths),
        cmocka_unit_test(system_errors), cmocka_unit_test(base_names),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
