// Stands in for ROCm's header of this name, so that a source which includes it compiles without ROCm.
#pragma once
#include "../../prelude.h"
