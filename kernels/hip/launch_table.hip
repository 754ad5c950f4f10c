// Host side: a kernel by its number. INSTANTIATIONS, one LAUNCH(number, traits) a kernel, is defined before this.
const char* launch_decode(int kernel, const DecodeArguments& arguments) {
#define LAUNCH(number, ...) \
  case number: launch<Traits{__VA_ARGS__}>(arguments); break;
  switch (kernel) {
    INSTANTIATIONS
    default: return "the module has no kernel of this number";
  }
#undef LAUNCH
  const hipError_t error = hipGetLastError();
  return error == hipSuccess ? nullptr : hipGetErrorString(error);
}
