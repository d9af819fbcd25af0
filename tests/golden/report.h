// Prints a hash and whether it is the expected one.
#pragma once
#include <stdio.h>
#include <string.h>

#include "sha256.h"

static bool report(const char* what, Sha256 hash, const char* expected) {
    char found[65];
    hash.finish(found);
    const bool right = strcmp(found, expected) == 0;
    printf("%s %s, %s%s\n", what, found, right ? "as expected" : "but expected ", right ? "" : expected);
    return right;
}
