-- Admits a request, or only checks its key, without an operation: lib/admission.lua does both before this runs.
-- Result: 1
return 1
