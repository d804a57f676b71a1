/* boxd/visibility.h: marks what libboxd exports; everything else in it is hidden. */
#pragma once

#define BOXD_API __attribute__((visibility("default")))
