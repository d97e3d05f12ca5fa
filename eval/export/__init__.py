"""Run folders as other tools read them: answers as a `datasets` table, memories as GraphML or Neo4j's CSV files."""
