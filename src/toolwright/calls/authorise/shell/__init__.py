"""The commands of a shell script, for the policy. Owns reading scripts; nothing here runs one."""
