package embedded

const crashEnv = "PARLEY_STORE_CRASH_CHILD"

func crashChild(string) int { return 0 }
