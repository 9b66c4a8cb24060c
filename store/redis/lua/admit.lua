-- Does nothing, because lib/admission.lua has already admitted the request or checked its API key.
-- Result: 1
return 1
